"""Where samples come from: a base model, or an immutable set of sampler weights for it."""

from dataclasses import dataclass

from openrl.domain.ids import DepotKey, RunId, SamplerId, SessionId, TenantId

#: How the last part of a folder's key begins where all weights of a model are in it, and no adapter.
WHOLE = "full-"


def holds_model(key: DepotKey) -> bool:
    """Whether the folder of that key holds all weights of a model rather than an adapter."""
    return key.rpartition("/")[2].startswith(WHOLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """A sampling session. It keeps the policy version it was made with, whatever its run does later."""

    id: SamplerId
    tenant: TenantId
    session: SessionId
    base_model: str  #: the canonical name of the served model
    requested_model: str  #: as the client spelled it
    policy: DepotKey | None  #: folder of the weights in the depot; None samples the base model
    model_path: str | None = None  #: the `tinker://` path it was made from
    run: RunId | None = None  #: whose unnamed version it samples; None for a checkpoint or the base model
    removed: bool = False  #: its weights were let go of; it cannot be sampled any more
