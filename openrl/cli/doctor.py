"""`openrl doctor`: what would keep `openrl serve` from working here, each finding with what to do about it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from openrl.cli import machine, probes
from openrl.cli.broker import find_program
from openrl.cli.errors import BrokerMissing, BrokerUnreachable, PortTaken
from openrl.cli.ports import LOCAL, require_port
from openrl.cli.text import columns
from openrl.config import Settings
from openrl.domain.errors import BaseModelMissing, SettingInvalid
from openrl.domain.webhook import target_of
from openrl.machine import BF16_FLAGS, cpu_flags, usable_cores
from openrl.models.catalogue import find, resolve

_LEAST_FREE_GB = 2.0  #: of disk: broker files, snapshots, checkpoints of small adapters


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    what: str
    level: Level
    fact: str
    fix: str = ""


def examine(read_settings: Callable[[], Settings]) -> list[Finding]:
    """All findings; without settings that can be read there are only those of the Python installation."""
    findings = [python(), *packages()]
    try:
        settings = read_settings()
    except SettingInvalid as error:
        return [*findings, Finding(what="settings", level=Level.FAIL, fact=str(error), fix="correct or unset it")]
    checks = (device, sandbox, rewards, broker, disk, model, memory)
    return [*findings, *(check(settings) for check in checks), *ports(settings)]


def python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    fact = ".".join(map(str, version))
    if version < (3, 11):
        return Finding(what="python", level=Level.FAIL, fact=fact, fix="use Python 3.11 or later")
    return Finding(what="python", level=Level.OK, fact=fact)


def packages() -> Iterator[Finding]:
    groups = {
        "core packages": machine.CORE_PACKAGES,
        "gateway packages": machine.GATEWAY_PACKAGES,
        "device packages": machine.DEVICE_PACKAGES,
        "flower": machine.FLOWER_PACKAGES,
    }
    for what, names in groups.items():
        missing = machine.missing_packages(names)
        level = Level.OK if not missing else Level.WARN if what == "flower" else Level.FAIL
        fact = f"missing: {', '.join(missing)}" if missing else "installed"
        yield Finding(what=what, level=level, fact=fact, fix="pip install 'openrl[serve]'" if missing else "")


def device(settings: Settings) -> Finding:
    """Asks torch, and the same chooser as the workers do."""
    try:
        import torch

        from workers.model.devices import choose_device, choose_dtype
    except ImportError as error:
        return Finding(what="device", level=Level.FAIL, fact=f"no torch: {error}", fix="pip install 'openrl[serve]'")
    try:
        chosen = choose_device(settings.worker.device)
        dtype = str(choose_dtype(settings.worker.dtype, chosen)).removeprefix("torch.")
    except SettingInvalid as error:
        return Finding(what="device", level=Level.FAIL, fact=str(error), fix="--device auto takes what is there")
    fast = sorted(BF16_FLAGS & cpu_flags())
    features = (
        f", {' '.join(fast) or 'no bfloat16 instructions'}, {usable_cores()} cores" if chosen.type == "cpu" else ""
    )
    return Finding(what="device", level=Level.OK, fact=f"{chosen} in {dtype}, torch {torch.__version__}{features}")


def sandbox(settings: Settings) -> Finding:
    """Tried for real in a process that ends; the reward worker chooses in the same way."""
    asked = settings.worker.sandbox
    lacking = _lacking_levels()
    level = next(name for name, why in lacking.items() if not why) if asked == "auto" else asked
    reasons = "; ".join(f"{name}: {why}" for name, why in lacking.items() if why)
    if lacking[level]:
        fix = "let OPENRL_WORKER__SANDBOX be auto, or run where the level can be had"
        return Finding(what="sandbox", level=Level.FAIL, fact=f"{level} cannot be had ({reasons})", fix=fix)
    fact = f"rewards are scored at level {level}" + (f" ({reasons})" if reasons else "")
    if level == "limits":
        fix = "docs/howto/rewards.md tells what it does not hold; a Linux kernel with Landlock gives a stronger one"
        return Finding(what="sandbox", level=Level.WARN, fact=fact, fix=fix)
    return Finding(what="sandbox", level=Level.OK, fact=fact)


def rewards(settings: Settings) -> Finding:
    """Which of the reward functions that are off by default clients may use."""
    wish = settings.reward
    hosts = ", ".join(dict.fromkeys(str(target_of(url)) for url in wish.webhook_urls))
    fact = f"webhook {'to ' + hosts if hosts else 'off'}; source {'on' if wish.source else 'off'}"
    if wish.webhook_urls and not wish.webhook_key:
        fix = "set OPENRL_REWARD__WEBHOOK_KEY to file:/PATH or env:NAME of a key that signs"
        return Finding(what="rewards", level=Level.FAIL, fact=f"{fact}, without a key", fix=fix)
    if wish.source and (why := _lacking_levels()["strong"]):
        fix = "clients are told so; run reward workers where level strong can be had"
        fact = f"{fact}, but refused: no sandbox of level strong ({why})"
        return Finding(what="rewards", level=Level.WARN, fact=fact, fix=fix)
    return Finding(what="rewards", level=Level.OK, fact=fact)


def _lacking_levels() -> dict[str, str]:
    """What is lacking for each level, strongest first; empty where nothing is."""
    ask = (sys.executable, "-m", "workers.reward.sandbox.walls")
    done = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=60)
    levels: dict[str, str] = json.loads(done.stdout)
    return levels


def broker(settings: Settings) -> Finding:
    try:
        if settings.redis_url is not None:
            probes.require_broker(settings.redis_url)
            return Finding(what="broker", level=Level.OK, fact=probes.without_password(settings.redis_url))
        return Finding(what="broker", level=Level.OK, fact=f"embedded: {find_program()}")
    except (BrokerMissing, BrokerUnreachable) as error:
        return Finding(what="broker", level=Level.FAIL, fact=str(error), fix="pip install 'openrl[serve]'")


def disk(settings: Settings) -> Finding:
    place = _nearest_existing(settings.home)
    free = shutil.disk_usage(place).free / 1e9
    fact = f"{free:.0f} GB free for {settings.home}"
    if free < _LEAST_FREE_GB:
        return Finding(what="disk", level=Level.WARN, fact=fact, fix="make room, or give --data-dir another place")
    return Finding(what="disk", level=Level.OK, fact=fact)


def model(settings: Settings) -> Finding:
    name = settings.base_model
    try:
        where = resolve(name, settings.home)
    except BaseModelMissing as error:
        if find(name) is None:
            return Finding(what="base model", level=Level.FAIL, fact=str(error), fix="see: openrl models list")
        return Finding(
            what="base model", level=Level.WARN, fact=f"{name} is not here yet", fix=f"openrl models pull {name}"
        )
    fact = f"{name} in {where}" if isinstance(where, Path) else f"{name} from the hub, by transformers"
    return Finding(what="base model", level=Level.OK, fact=fact)


def memory(settings: Settings) -> Finding:
    free = machine.free_gb()
    try:
        where = resolve(settings.base_model, settings.home)
    except BaseModelMissing:
        where = ""
    if not isinstance(where, Path):
        return Finding(
            what="memory", level=Level.OK, fact=f"{free:.1f} GB free; the base model's size is not known yet"
        )
    needed = machine.needed_gb(where, settings.worker.dtype, copies=1)
    fact = f"{free:.1f} GB free, about {needed:.1f} GB needed"
    if needed > free and machine.weights_in_main_memory(settings.worker.device):
        return Finding(what="memory", level=Level.FAIL, fact=fact, fix="free memory or choose a smaller base model")
    return Finding(what="memory", level=Level.OK, fact=fact)


def ports(settings: Settings) -> Iterator[Finding]:
    gateway = settings.gateway
    yield _port("gateway port", gateway.host, gateway.port, "--port 0 picks a free one")
    yield _port("flower port", LOCAL, settings.flower_port, "--flower-port 0 picks a free one")


def any_failed(findings: Sequence[Finding]) -> bool:
    return any(finding.level is Level.FAIL for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps([asdict(finding) for finding in findings], indent=2)


def as_text(findings: Sequence[Finding]) -> str:
    return columns([(f.level, f.what, f"{f.fact}  → {f.fix}" if f.fix else f.fact) for f in findings])


def _port(what: str, host: str, port: int, fix: str) -> Finding:
    try:
        require_port(what, host, port)
    except (PortTaken, SettingInvalid) as error:
        return Finding(what=what, level=Level.FAIL, fact=str(error), fix=fix)
    return Finding(what=what, level=Level.OK, fact=f"{port} is free" if port else "takes a free one")


def _nearest_existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
