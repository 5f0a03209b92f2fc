"""Requests that save and load weights."""

from typing import Any, Literal

from pydantic import Field

from openrl.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointPath, check_name
from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import DepotKey, RunId, SamplerId
from openrl.domain.op import LoadWeights, SavePolicy, SaveWeights
from openrl.domain.run import LoraSpec, Run
from openrl.wire.base import INT32, Metadata, Ttl, TurnRequest, Wire


class SaveWeightsRequest(TurnRequest):
    type: Literal["save_weights"] = "save_weights"
    path: str
    overwrite: bool = False
    ttl_seconds: Ttl | None = None
    user_metadata: Metadata | None = None


class SavePolicyRequest(TurnRequest):
    """Sampler weights: named by `path`, or for one sampler of the session."""

    type: Literal["save_weights_for_sampler"] = "save_weights_for_sampler"
    kind: Literal["snapshot", "inflight"] = "snapshot"
    path: str | None = None
    sampling_session_seq_id: int | None = Field(None, ge=0, le=INT32)
    ttl_seconds: Ttl | None = None
    user_metadata: Metadata | None = None


class Load(Wire):
    """What both forms of load_weights say."""

    type: Literal["load_weights"] = "load_weights"
    path: str
    optimizer: bool
    base_model: str | None = None
    user_metadata: Metadata | None = None
    optimizer_config: dict[str, Any] | None = None
    weights_access_token: str | None = Field(None, repr=False)


class LoadInto(Load, TurnRequest):
    """Into a run that is there."""


class CreateFromWeights(Load):
    """As the first thing a new run does."""

    session_id: str
    model_seq_id: int = Field(ge=0, le=INT32)


class TtlRequest(Wire):
    ttl_seconds: Ttl | None


def to_save(request: SaveWeightsRequest, target: DepotKey) -> SaveWeights:
    return SaveWeights(
        target=target,
        path=_named(request.model_id, CheckpointKind.WEIGHTS, request.path),
        overwrite=request.overwrite,
        ttl_seconds=request.ttl_seconds,
        user_metadata=request.user_metadata or {},
    )


def to_save_policy(request: SavePolicyRequest, target: DepotKey, sampler: SamplerId | None) -> SavePolicy:
    """Named where the request has a path, else for `sampler`."""
    if request.kind == "inflight":
        raise FieldInvalid("kind", "'inflight' is not supported: samplers here keep their weights; use 'snapshot'")
    if (request.path is None) == (request.sampling_session_seq_id is None):
        raise FieldInvalid("path", "send either path or sampling_session_seq_id")
    name = request.path
    return SavePolicy(
        target=target,
        path=None if name is None else _named(request.model_id, CheckpointKind.SAMPLER_WEIGHTS, name),
        sampler=sampler,
        ttl_seconds=request.ttl_seconds,
        user_metadata=request.user_metadata or {},
    )


def to_load_path(request: Load) -> CheckpointPath:
    """The checkpoint asked for, if it is of a kind that training can go on from."""
    if request.weights_access_token is not None:
        raise FieldInvalid("weights_access_token", "is not supported; only checkpoints of your own can be loaded")
    path = CheckpointPath.parse(request.path)
    if path.kind is not CheckpointKind.WEIGHTS:
        raise FieldInvalid("path", f"{request.path} is for sampling only; load one saved with save_state (…/weights/…)")
    return path


def to_load(request: Load, checkpoint: Checkpoint, source: Run) -> LoadWeights:
    """`source` is the run that the checkpoint was saved from."""
    if request.optimizer and not checkpoint.has_optimizer:
        raise FieldInvalid("optimizer", f"{checkpoint.path} holds no optimizer state; load it with optimizer=False")
    return LoadWeights(
        base_model=source.base_model,
        lora=source.lora,
        source=checkpoint.key,
        path=str(checkpoint.path),
        with_optimizer=request.optimizer,
    )


def check_same_shape(loaded: LoraSpec | None, run: LoraSpec | None) -> None:
    """An adapter can only be loaded into a run of its own shape, all weights (None) into a run of all weights."""
    if loaded is None or run is None:
        if loaded is not run:
            there, here = ("all weights" if each is None else "an adapter" for each in (loaded, run))
            raise FieldInvalid("path", f"the checkpoint has {there} and the run trains {here}")
        return
    for name in ("rank", "train_attn", "train_mlp", "train_unembed"):
        there, here = getattr(loaded, name), getattr(run, name)
        if there != here:
            raise FieldInvalid("path", f"the checkpoint has {name}={there} and the run {name}={here}")


def _named(run: str, kind: CheckpointKind, name: str) -> str:
    return str(CheckpointPath(run=RunId(run), kind=kind, name=check_name(name)))
