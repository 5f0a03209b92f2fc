"""Which components one machine needs for given settings. Starts nothing."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

import redis

from openrl.cli import probes
from openrl.cli.broker import Broker, configuration
from openrl.cli.child import Component
from openrl.cli.environment import child_env
from openrl.cli.lineup import lineup
from openrl.cli.ports import LOCAL
from openrl.config import Settings

#: Seconds a worker gets to hand back what it holds, beside those it may go on (`worker.drain_seconds`).
HAND_BACK_SECONDS = 10.0
#: Who is stopped first: workers still need the broker, and the gateway should outlive them for a last answer.
WORKERS, GATEWAY, FLOWER, BROKER = range(4)
FLOWER_USER = "openrl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the command line decides beside the settings."""

    base_models: tuple[str, ...] = ()  #: none is the one in the settings
    separate: bool = False  #: train and sample workers instead of ones that do both
    device_workers: int = 1
    train_workers: int = 1  #: where they are separate, like the next
    sample_workers: int = 1
    flower: bool = True
    program: tuple[str, ...] = ()  #: a command to run when all is ready; serving ends with it

    @property
    def model_workers(self) -> dict[str, int]:
        """How many workers of each role load a base model."""
        if self.separate:
            return {"train": self.train_workers, "sample": self.sample_workers}
        return {"device": self.device_workers}

    @property
    def copies(self) -> int:
        """How many workers load a base model, all models together."""
        return max(1, len(self.base_models)) * sum(self.model_workers.values())


def base_url(settings: Settings) -> str:
    """Where clients on this machine find the gateway."""
    host = _reachable(settings.gateway.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.gateway.port}"


def broker_component(broker: Broker, settings: Settings, own: Mapping[str, str]) -> Component:
    """`own` is this process's environment; the server takes nothing of ours from it."""
    return Component(
        name="broker",
        command=broker.command,
        env={name: value for name, value in own.items() if not name.startswith("OPENRL_")},
        stdin=configuration(broker),
        log=settings.home / "logs" / "broker.log",
        address=f"{LOCAL}:{broker.port}",
        is_ready=probes.broker_answers(probes.connect(broker.url)),
        stop_rank=BROKER,
    )


def components(settings: Settings, choices: Choices, own: Mapping[str, str], secret: str) -> list[Component]:
    """All but the broker. The settings must name it (`redis_url`) and real ports (not 0). Flower asks for `secret`."""
    assert settings.redis_url is not None
    client = probes.connect(settings.redis_url)
    if not choices.flower:  # nobody would listen
        settings = settings.model_copy(update={"worker": settings.worker.model_copy(update={"events": False})})
    env = child_env(settings, own)
    models = lineup(settings, choices.base_models)
    workers = [
        _worker(role, number, model, child_env(model, own), client)
        for role, count in choices.model_workers.items()
        for number, model in enumerate((model for model in models for _ in range(count)), 1)
    ]
    parts = [_gateway(settings, env), *workers, _worker("reward", 1, settings, env, client)]
    parts = [_telling(part, settings.metrics.port, number) for number, part in enumerate(parts)]
    return [*parts, _flower(settings, env, secret)] if choices.flower else parts


def _telling(part: Component, first_port: int, number: int) -> Component:
    """With a port for its metrics that no other component has."""
    if not first_port:
        return part
    return replace(part, env={**part.env, "OPENRL_METRICS__PORT": str(first_port + number)})


def _gateway(settings: Settings, env: Mapping[str, str]) -> Component:
    host = _reachable(settings.gateway.host)
    return Component(
        name="gateway",
        command=(sys.executable, "-m", "openrl.cli.main", "gateway"),
        env=env,
        log=settings.home / "logs" / "gateway.log",
        address=base_url(settings),
        is_ready=probes.http_answers(host, settings.gateway.port, "/api/v1/healthz"),
        stop_rank=GATEWAY,
    )


def _worker(role: str, number: int, settings: Settings, env: Mapping[str, str], client: redis.Redis) -> Component:
    model = "" if role == "reward" else settings.base_model
    first = number == 1
    return Component(
        name=f"{role} worker" if first else f"{role} worker {number}",
        command=(sys.executable, "-m", "openrl.cli.main", "worker", role),
        env=env,
        log=settings.home / "logs" / (f"{role}.log" if first else f"{role}-{number}.log"),
        address=model,
        is_ready=probes.worker_announced(client),
        grace_seconds=settings.worker.drain_seconds + HAND_BACK_SECONDS,
        stop_rank=WORKERS,
    )


def _flower(settings: Settings, env: Mapping[str, str], secret: str) -> Component:
    port = settings.flower_port
    where = (f"--address={LOCAL}", f"--port={port}")
    return Component(
        name="flower",
        command=(sys.executable, "-m", "celery", "-A", "queues.app", "flower", *where),
        env={**env, "FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{secret}"},
        log=settings.home / "logs" / "flower.log",
        address=f"http://{LOCAL}:{port} (user {FLOWER_USER}, password: the API key)",
        is_ready=probes.http_answers(LOCAL, port, "/healthcheck"),
        grace_seconds=3.0,
        stop_rank=FLOWER,
    )


def _reachable(host: str) -> str:
    """An address to connect to for one to listen on."""
    return {"0.0.0.0": LOCAL, "::": "::1"}.get(host, host)
