"""A training run: one LoRA adapter, or all weights of the base model, with its optimizer."""

from dataclasses import dataclass, field
from datetime import datetime

from openrl.domain.ids import RunId, SessionId, TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSpec:
    rank: int
    seed: int | None = None
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamParams:
    """AdamW with bias correction; `weight_decay` is decoupled, `grad_clip_norm` 0 means no clipping."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    id: RunId
    tenant: TenantId
    session: SessionId
    base_model: str  #: the canonical name of the served model
    requested_model: str  #: as the client spelled it
    lora: LoraSpec | None  #: None: it trains all weights
    created_at: datetime
    last_request_at: datetime
    user_metadata: dict[str, str] = field(default_factory=dict)
