"""What `openrl serve` settles and checks before it starts anything: each failure is one sentence that names the fix."""

from pathlib import Path

from openrl.cli import machine, probes
from openrl.cli.broker import find_program
from openrl.cli.lineup import lineup
from openrl.cli.plan import Choices
from openrl.cli.ports import LOCAL, free_port, require_port
from openrl.config import Settings
from openrl.domain.errors import BaseModelMissing
from openrl.machine import usable_cores
from openrl.models.catalogue import Listed, find, folder_of, is_model, resolve


def with_ports(settings: Settings) -> Settings:
    """Real ports in place of 0."""
    gateway = settings.gateway.model_copy(update={"port": settings.gateway.port or free_port()})
    flower_port = settings.flower_port or free_port()
    return settings.model_copy(update={"gateway": gateway, "flower_port": flower_port})


def with_threads(settings: Settings, choices: Choices) -> Settings:
    """An even part of the cores for each of several workers that compute on this machine, unless threads are set."""
    if choices.copies == 1 or settings.worker.threads:
        return settings
    worker = settings.worker.model_copy(update={"threads": max(1, usable_cores() // choices.copies)})
    return settings.model_copy(update={"worker": worker})


def check(settings: Settings, choices: Choices) -> None:
    """Raises OperatorError: a package, port or broker is missing, or the base model is unknown or too large."""
    machine.require_packages(machine.CORE_PACKAGES + machine.GATEWAY_PACKAGES + machine.DEVICE_PACKAGES)
    if choices.flower:
        machine.require_packages(machine.FLOWER_PACKAGES)
        require_port("Flower (--flower-port)", LOCAL, settings.flower_port)
    require_port("gateway (--host, --port)", settings.gateway.host, settings.gateway.port)
    if settings.redis_url is None:
        find_program()
    else:
        probes.require_broker(settings.redis_url)
    if not to_pull(settings, choices):
        check_models(settings, choices)


def check_models(settings: Settings, choices: Choices) -> None:
    """Raises BaseModelMissing, ModelWontFit. A hub id is taken on trust: it may have to be downloaded first."""
    wheres = [resolve(model.base_model, settings.home) for model in lineup(settings, choices.base_models)]
    folders = [where for where in wheres if isinstance(where, Path)]
    each = sum(choices.model_workers.values())
    machine.require_memory(folders, settings.worker.dtype, settings.worker.device, copies=each)


def to_pull(settings: Settings, choices: Choices) -> list[Listed]:
    """The listed base models that have to be fetched first. Raises BaseModelMissing where a person must agree first."""
    models = (_absent(model.base_model, settings.home) for model in lineup(settings, choices.base_models))
    return [model for model in models if model is not None]


def _absent(name: str, home: Path) -> Listed | None:
    model = find(name)
    if model is None or "/" in name or is_model(folder_of(model, home)):
        return None
    if model.terms is not None:
        why = f"its terms have to be agreed to first; fetch it with: openrl models pull {model.name}"
        raise BaseModelMissing(model.name, why)
    return model
