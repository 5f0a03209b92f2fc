"""The optimizer step."""

from typing import Annotated, Any, Literal

from pydantic import Field

from openrl.domain.errors import FieldInvalid
from openrl.domain.op import OptimStep
from openrl.domain.run import AdamParams
from openrl.wire.base import TurnRequest, Wire

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Decay = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class Adam(Wire):
    learning_rate: Amount = 1e-4
    beta1: Decay = 0.9
    beta2: Decay = 0.95
    eps: Amount = 1e-12
    weight_decay: Amount = 0.0
    grad_clip_norm: Amount = 0.0


class OptimStepRequest(TurnRequest):
    type: Literal["optim_step"] = "optim_step"
    adam_params: Adam | None = None
    optimizer_params: dict[str, Any] | None = None


def to_optim_step(request: OptimStepRequest) -> OptimStep:
    if request.optimizer_params is not None:
        kind = request.optimizer_params.get("type")
        raise FieldInvalid("optimizer_params", f"optimizer {kind!r} is not supported; send adam_params")
    if request.adam_params is None:
        raise FieldInvalid("adam_params", "is missing")
    return OptimStep(adam=AdamParams(**request.adam_params.model_dump()))
