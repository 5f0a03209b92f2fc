"""One component as a process: its command, its log file, its death. Knows no policy (`supervisor`)."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LOG_LIMIT_BYTES = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """What to start, and how one finds out that it works."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    address: str  #: for people
    is_ready: Callable[[int], bool]  #: asked with the process id, often; must answer within a second
    stdin: str = ""
    grace_seconds: float = 5.0  #: from SIGTERM to SIGKILL
    stop_rank: int = 0  #: lower ones are stopped first; equal ones together


@dataclass(slots=True)
class Child:
    """The running process of a component, leader of a process group of its own."""

    component: Component
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def exit_status(self) -> int | None:
        """None while it runs."""
        return self.process.poll()


def start(component: Component) -> Child:
    """Start it in a session of its own, so that Ctrl-C at the terminal reaches nobody but the supervisor."""
    component.log.parent.mkdir(parents=True, exist_ok=True)
    with component.log.open("a") as log:
        process = subprocess.Popen(
            component.command,
            env=dict(component.env),
            stdin=subprocess.PIPE if component.stdin else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    if process.stdin is not None:
        process.stdin.write(component.stdin)
        process.stdin.close()
    return Child(component, process)


def stop(children: Iterable[Child], hurry: Callable[[], bool] = lambda: False) -> None:
    """Stop them in the order of their ranks: SIGTERM, a grace (cut short once `hurry`), then SIGKILL to the group."""
    left = sorted(children, key=lambda child: child.component.stop_rank)
    while left:
        rank = left[0].component.stop_rank
        together = [child for child in left if child.component.stop_rank == rank]
        left = left[len(together) :]
        _stop_together(together, hurry)


def kill_group(pid: int) -> None:
    """The process and all it started; nothing where there is nobody left."""
    with suppress(ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        os.killpg(pid, signal.SIGKILL)


def tail(log: Path, lines: int) -> tuple[str, ...]:
    """The last lines that say something."""
    if not log.exists():
        return ()
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 16_384))
        said = file.read().decode(errors="replace").splitlines()
    return tuple(line.rstrip() for line in said if line.strip())[-lines:]


def make_room(log: Path) -> None:
    """Put a log that has grown large aside; the one before it is forgotten."""
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.rename(log.with_suffix(".log.1"))


def _stop_together(children: list[Child], hurry: Callable[[], bool]) -> None:
    for child in children:
        if child.exit_status() is None:
            os.kill(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + max(child.component.grace_seconds for child in children)
    while any(child.exit_status() is None for child in children) and time.monotonic() < deadline and not hurry():
        time.sleep(0.02)
    for child in children:
        kill_group(child.pid)  # also what it may have left behind
        child.process.wait()
