"""The policy that a request for rollouts names, as weights that do not change."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from openrl.domain.checkpoint import CheckpointKind, CheckpointPath
from openrl.domain.errors import CheckpointMissing, FieldInvalid, RunNotFound, SamplerNotFound
from openrl.domain.ids import DepotKey, RunId, SamplerId, TenantId
from openrl.gateway.services import Services
from openrl.wire.rollouts import PolicyChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    base_model: str  #: canonical
    key: DepotKey | None  #: None samples the base model
    name: str  #: for people: a path, a sampler, or the base model


def policy_of(services: Services, tenant: TenantId, choice: PolicyChoice, where: str = "policy") -> Policy:
    """Raises FieldInvalid, ModelUnknown, NoWorker, and NotFoundError for what is not the tenant's, by the field's whole
    path: `where` is that of the choice."""
    field, name = choice.chosen
    with _missing(f"{where}.{field}"):
        return _named(services, tenant, field, name)


@contextmanager
def _missing(field: str) -> Iterator[None]:
    """What is not there was asked for by that field."""
    try:
        yield
    except (CheckpointMissing, RunNotFound, SamplerNotFound) as error:
        raise type(error)(error.args[0], field) from None


def _named(services: Services, tenant: TenantId, field: str, name: str) -> Policy:
    match field:
        case "base_model":
            return _of_model(services, name)
        case "path":
            return _of_path(services, tenant, CheckpointPath.parse(name, "policy.path"))
        case "sampler":
            sampler = services.sampler(tenant, SamplerId(name))
            return Policy(base_model=sampler.base_model, key=sampler.policy, name=sampler.model_path or sampler.id)
        case _:
            return _of_run(services, tenant, RunId(name))


def _of_model(services: Services, name: str) -> Policy:
    card = services.requested_card(name)
    if not card.sampleable:
        raise FieldInvalid("policy.base_model", f"{name} is served for training only")
    return Policy(base_model=card.name, key=None, name=card.name)


def _of_path(services: Services, tenant: TenantId, path: CheckpointPath) -> Policy:
    checkpoint = services.catalog.checkpoint(tenant, path)
    return Policy(base_model=services.run(tenant, path.run).base_model, key=checkpoint.key, name=str(path))


def _of_run(services: Services, tenant: TenantId, run: RunId) -> Policy:
    base_model = services.run(tenant, run).base_model
    saved = services.catalog.run_checkpoints(tenant, run)
    versions = [checkpoint for checkpoint in saved if checkpoint.path.kind is CheckpointKind.SAMPLER_WEIGHTS]
    if not versions:
        raise FieldInvalid(
            "policy.run",
            f"{run} has no saved policy version; call save_weights_for_sampler with a name, or name a sampler",
        )
    return Policy(base_model=base_model, key=versions[-1].key, name=str(versions[-1].path))
