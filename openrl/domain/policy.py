"""Where samples come from: a base model, or an immutable set of sampler weights on top of it."""

from dataclasses import dataclass

from openrl.domain.ids import DepotKey, SamplerId, SessionId, TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """A sampling session. It keeps the policy version it was made with, whatever its run does later."""

    id: SamplerId
    tenant: TenantId
    session: SessionId
    base_model: str  #: the canonical name of the served model
    requested_model: str  #: as the client spelled it
    policy: DepotKey | None  #: folder of the adapter in the depot; None samples the base model
    model_path: str | None = None  #: the `tinker://` path it was made from
