"""What `openrl serve` settles and checks before it starts anything: each failure is one sentence that names the fix."""

from pathlib import Path

from openrl.cli import machine, probes
from openrl.cli.broker import find_program
from openrl.cli.plan import Choices
from openrl.cli.ports import LOCAL, free_port, require_port
from openrl.config import Settings
from openrl.domain.errors import BaseModelMissing
from openrl.machine import usable_cores
from openrl.models.catalogue import Listed, find, folder_of, is_model, resolve


def with_ports(settings: Settings, choices: Choices) -> Settings:
    """Real ports in place of 0, and an even part of the cores for each of several workers on one machine."""
    gateway = settings.gateway.model_copy(update={"port": settings.gateway.port or free_port()})
    worker = settings.worker
    copies = sum(choices.model_workers.values())
    if copies > 1 and not worker.threads:
        worker = worker.model_copy(update={"threads": max(1, usable_cores() // copies)})
    flower_port = settings.flower_port or free_port()
    return settings.model_copy(update={"gateway": gateway, "worker": worker, "flower_port": flower_port})


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
    if to_pull(settings) is None:
        check_model(settings, choices)


def check_model(settings: Settings, choices: Choices) -> None:
    """Raises BaseModelMissing, ModelWontFit. A hub id is taken on trust: it may have to be downloaded first."""
    where = resolve(settings.base_model, settings.home)
    if isinstance(where, Path):
        worker = settings.worker
        copies = sum(choices.model_workers.values())
        machine.require_memory(where, worker.dtype, worker.device, copies=copies)


def to_pull(settings: Settings) -> Listed | None:
    """The listed base model that has to be fetched first. Raises BaseModelMissing where a person must agree first."""
    model = find(settings.base_model)
    if model is None or "/" in settings.base_model or is_model(folder_of(model, settings.home)):
        return None
    if model.terms is not None:
        why = f"its terms have to be agreed to first; fetch it with: openrl models pull {model.name}"
        raise BaseModelMissing(model.name, why)
    return model
