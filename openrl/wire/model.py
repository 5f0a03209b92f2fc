"""Requests that create runs or ask about them."""

from typing import Any, Literal

from pydantic import Field

from openrl.domain.errors import FieldInvalid, FullRunsOff
from openrl.domain.model import ModelCard
from openrl.domain.run import LoraSpec
from openrl.wire.base import INT32, Metadata, Seed, Wire


class LoraConfig(Wire):
    rank: int = Field(ge=1)
    seed: Seed | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class CreateModel(Wire):
    type: Literal["create_model"] = "create_model"
    session_id: str
    model_seq_id: int = Field(ge=0, le=INT32)
    base_model: str
    lora_config: LoraConfig | None = None
    optimizer_config: dict[str, Any] | None = None
    user_metadata: Metadata | None = None


class GetInfo(Wire):
    type: Literal["get_info"] = "get_info"
    model_id: str


class WeightsInfo(Wire):
    tinker_path: str


def to_lora(request: CreateModel, card: ModelCard, *, full: bool = False) -> LoraSpec | None:
    """The adapter to train; None for all weights, which a request asks for by having no `lora_config`, or by `full`
    beside one: the SDK always sends one. Raises FieldInvalid for what the model or the service cannot train,
    FullRunsOff."""
    check_optimizer(request.optimizer_config)
    config = request.lora_config
    if config is None or full:
        _check_full(config, card)
        return None
    if config.rank > card.max_lora_rank:
        raise FieldInvalid("lora_config.rank", f"is {config.rank}; {card.name} takes ranks 1..{card.max_lora_rank}")
    if not (config.train_attn or config.train_mlp or config.train_unembed):
        raise FieldInvalid("lora_config", "train_attn, train_mlp and train_unembed are all false; choose at least one")
    return LoraSpec(
        rank=config.rank,
        seed=config.seed,
        train_attn=config.train_attn,
        train_mlp=config.train_mlp,
        train_unembed=config.train_unembed,
    )


def _check_full(config: LoraConfig | None, card: ModelCard) -> None:
    """A rank that comes along means nothing; a part that is not to be trained would."""
    if not card.full_runs:
        raise FullRunsOff
    if config is not None and not (config.train_attn and config.train_mlp and config.train_unembed):
        raise FieldInvalid("lora_config", "a run of all weights trains every part; leave train_* true, or ask for LoRA")


def check_optimizer(config: dict[str, Any] | None) -> None:
    if config is not None and config != {"type": "adamw"}:
        raise FieldInvalid("optimizer_config", f"{config} is not supported; this server has only {{'type': 'adamw'}}")
