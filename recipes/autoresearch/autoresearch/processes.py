"""Programs that others wrote, started with little and ended wholly.

A program sees only the variables that were named, a HOME and a TMPDIR of its own, and no terminal. All that it starts
inherits a mark in its environment, by which whatever is left of it is found and killed at the end, in another process
group or session too. This bounds programs that make mistakes; it is no wall against one that means harm.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from autoresearch.errors import ResearchError

MARK = "AUTORESEARCH_MARK"
GRACE_SECONDS = 2.0  #: from SIGTERM to SIGKILL
SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class Ending:
    status: int | None  #: None where its time was up
    seconds: float


@dataclass(frozen=True, slots=True)
class Mark:
    """Who started a process: which record, which start of the harness, which attempt."""

    record: str
    start: str
    attempt: str = ""

    @classmethod
    def fresh(cls, record: Path) -> "Mark":
        return cls(str(record), uuid.uuid4().hex)

    def of(self, attempt: str) -> "Mark":
        return Mark(self.record, self.start, attempt)

    def text(self) -> str:
        return SEPARATOR.join((self.record, self.start, self.attempt))


def environment(names: Sequence[str], key: str, record: Path) -> dict[str, str]:
    """The variables that were named, and PATH. {record} in a value is the record's folder: for a cache that attempts
    share. Raises ResearchError where one is not set."""
    chosen = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in names:
        name, given, value = name.partition("=")
        if not given and name not in os.environ:
            raise ResearchError(f"`{key}` names {name}, which is not set here: export it, or take it out of the list")
        chosen[name] = value.replace("{record}", str(record)) if given else os.environ[name]
    return chosen


async def run(
    command: list[str], *, cwd: Path, variables: dict[str, str], home: Path, log: Path, seconds: float, mark: Mark
) -> Ending:
    """Runs the command to its end or until its time is up; leaves nobody behind. What it prints goes to `log`.

    Raises OSError where it cannot be started.
    """
    began = time.monotonic()
    with _places(home) as places, log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env={**variables, **places, MARK: mark.text()},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            status = None
        finally:
            await _end(process)
            kill_marked(mark)
    return Ending(status, time.monotonic() - began)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE_SECONDS)
    with suppress(ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


@contextmanager
def _places(home: Path) -> Iterator[dict[str, str]]:
    """A HOME and a TMPDIR for one program; both are gone after it."""
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    try:
        yield {"HOME": str(home), "TMPDIR": str(temporary)}
    finally:
        shutil.rmtree(home, ignore_errors=True)


def kill_marked(mark: Mark) -> int:
    """Ends every process that bears the mark (of the whole start where it names no attempt); returns how many."""
    wanted = mark.text()
    return _kill(lambda found: found == wanted if mark.attempt else found.startswith(wanted))


def kill_earlier(mark: Mark) -> int:
    """Ends what earlier starts of the harness on this record have left, if anything."""
    record, this = mark.record + SEPARATOR, SEPARATOR.join((mark.record, mark.start))
    return _kill(lambda found: found.startswith(record) and not found.startswith(this))


def _kill(wanted: Callable[[str], bool]) -> int:
    """Looks again until there are none: one that is about to be killed may just have started another."""
    killed = 0
    while found := [process for process in psutil.process_iter() if wanted(_mark_of(process))]:
        for process in found:
            with suppress(psutil.Error):
                process.kill()
                killed += 1
        psutil.wait_procs(found, timeout=1)
    return killed


def _mark_of(process: psutil.Process) -> str:
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return process.environ().get(MARK, "")
    except (psutil.Error, OSError):  # gone by now, or somebody else's
        return ""


class Leash:
    """Ends what this harness started when it is gone without having done so itself (SIGKILL, crash).

    A process that waits for the end of its input, which comes with the harness's own.
    """

    def __init__(self, mark: Mark) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("leash.py")), mark.record, mark.start],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
