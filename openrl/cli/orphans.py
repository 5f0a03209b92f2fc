"""A watcher that ends the components when the supervisor is gone without having stopped them (SIGKILL, crash).

Runs as a process of its own: `python -m openrl.cli.orphans`. It reads `+ PID RANK GRACE` and `- PID` lines from the
supervisor; the end of that stream means that the supervisor is gone. Standard library only, so that it is small.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple


class Orphan(NamedTuple):
    rank: int  #: lower ones are ended first
    pid: int  #: leads a process group
    grace_seconds: float


class Watcher:
    """The supervisor's end of it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "openrl.cli.orphans"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, pid: int, rank: int, grace_seconds: float) -> None:
        self._tell(f"+ {pid} {rank} {grace_seconds}")

    def forget(self, pid: int) -> None:
        self._tell(f"- {pid}")

    def close(self) -> None:
        """Those who are still watched are ended now."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # somebody killed the watcher; the supervisor itself still stops its children
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def read(lines: Iterable[str]) -> list[Orphan]:
    """Those who are left when the stream ends, in the order to end them."""
    left: dict[int, Orphan] = {}
    for line in lines:
        match line.split():
            case ["+", pid, rank, grace]:
                left[int(pid)] = Orphan(int(rank), int(pid), float(grace))
            case ["-", pid]:
                left.pop(int(pid), None)
    return sorted(left.values())


def end(orphans: list[Orphan]) -> None:
    """Rank after rank: SIGTERM, and SIGKILL to the whole group when the process has ended or its grace is over."""
    for rank in sorted({orphan.rank for orphan in orphans}):
        together = [orphan for orphan in orphans if orphan.rank == rank]
        for orphan in together:
            _reached(os.kill, orphan.pid, signal.SIGTERM)
        started = time.monotonic()
        for orphan in together:
            while _reached(os.kill, orphan.pid, 0) and time.monotonic() - started < orphan.grace_seconds:
                time.sleep(0.02)
            _reached(os.killpg, orphan.pid, signal.SIGKILL)


def _reached(send: Callable[[int, int], None], pid: int, number: int) -> bool:
    """Whether somebody was there to get the signal."""
    try:
        send(pid, number)
    except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        return False
    return True


if __name__ == "__main__":
    end(read(sys.stdin))
