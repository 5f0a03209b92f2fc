"""The worker's side of the sandbox: starts the zygote, has it fork children, talks to them, ends them.

A child's end is always asked of its zygote, which is the parent and kills the whole of it. Thread-safe.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from openrl.domain.errors import GraderFailed, SandboxFailed, SettingInvalid
from workers.reward.catalogue import Listing
from workers.reward.sandbox import frames
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.spent import Spent, spent

START_SECONDS: Final = 120.0
ORDER_SECONDS: Final = 20.0
_LEAVING_SECONDS: Final = 1.0
Task = Literal["score", "execute"]
GREETING_BYTES: Final = 1 << 22
ANSWER_BYTES: Final = 1 << 22

#: All that the zygote knows of its surroundings.
ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}


@dataclass(frozen=True, slots=True)
class End:
    status: int | None  #: exit status, or a signal's number below zero; None where nobody knows
    cpu_seconds: float = 0.0
    by_itself: bool = True  #: it had ended before it was told to


class Child:
    """A process behind walls, at the other end of a pipe."""

    def __init__(self, zygote: "_Zygote", pid: int, folder: Path, pipe: socket.socket) -> None:
        self._zygote, self._pid, self._pipe = zygote, pid, pipe
        self._lock = threading.Lock()
        self._end: End | None = None
        self.folder = folder
        self.number = 0  #: by which this process can look at it; 0 for none
        self.asked = 0
        self._owes = 0  #: answers

    def ask(self, message: dict[str, Any], until: float) -> None:
        """Raises frames.Ended, frames.Overdue."""
        self.asked, self._owes = self.asked + 1, self._owes + 1
        frames.send(self._pipe, message, until)

    def answer(
        self, until: float, most_bytes: int = ANSWER_BYTES, watch: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """Raises what frames.receive does."""
        message = frames.receive(self._pipe, most_bytes, until, watch)
        self._owes -= 1
        return message

    def spent(self) -> Spent | None:
        """What it had of the machine; None where the system does not tell."""
        return spent(self.number) if self.number else None

    @property
    def at_rest(self) -> bool:
        """It lives and waits to be asked."""
        return self._end is None and not self._owes and not frames.has_word(self._pipe)

    def await_end(self) -> None:
        """Give a child that says no more the time to be gone, so that `end` tells how it ended by itself."""
        until = time.monotonic() + _LEAVING_SECONDS
        while self._end is None and not self._zygote.is_over(self._pid) and time.monotonic() < until:
            time.sleep(0.002)

    def end(self) -> End:
        """Kill it if it lives, from any thread: whoever waits for its answer gets frames.Ended."""
        with self._lock:
            if self._end is None:
                self._end = self._zygote.end(self._pid)
                with suppress(OSError):
                    self._pipe.shutdown(socket.SHUT_RDWR)
            return self._end

    def close(self) -> None:
        """End it and let go of the pipe; by whoever asks it, for every child."""
        self.end()
        self._pipe.close()


class Nursery:
    """Raises SettingInvalid where the level cannot be had, SandboxFailed where no child can be forked at all."""

    def __init__(self, level: str = "auto") -> None:
        self._lock = threading.Lock()
        scoring = _Zygote(level, "score")
        self.level, self.listing, self.readable = scoring.level, scoring.listing, scoring.readable
        self._zygotes: dict[Task, _Zygote] = {"score": scoring}
        try:
            self._zygotes["execute"] = _Zygote(self.level, "execute")
        except BaseException:
            self.close()
            raise

    def fork(self, task: Task, limits: Limits) -> Child:
        """A child that is ready. Raises GraderFailed where there is none to be had now."""
        try:
            return self._living(task).fork(limits)
        except frames.Ended:
            raise GraderFailed("texts", "could not be started: its zygote is gone") from None
        except (OSError, SandboxFailed) as error:
            raise GraderFailed("texts", f"could not be started: {error}") from None

    def close(self) -> None:
        for zygote in self._zygotes.values():
            zygote.close()

    def _living(self, task: Task) -> "_Zygote":
        """Of the first level again, whatever became of the machine since."""
        with self._lock:
            if self._zygotes[task].gone:
                self._zygotes[task].close()
                self._zygotes[task] = _Zygote(self.level, task)
            return self._zygotes[task]


class _Zygote:
    def __init__(self, level: str, task: Task) -> None:
        self._lock = threading.Lock()
        self._orders, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                _command(theirs.fileno(), level, task),
                env=ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        try:
            greeting = frames.receive(self._orders, GREETING_BYTES, time.monotonic() + START_SECONDS)
        except (frames.Ended, frames.Overdue):
            self.close()
            raise SandboxFailed("its first process ended at once; the worker's log says why") from None
        if "lacking" in greeting:
            self.close()
            raise SettingInvalid("OPENRL_WORKER__SANDBOX", f"{level} cannot be had here: {greeting['lacking']}")
        self.level, self.listing = Level(greeting["level"]), Listing.of(greeting)
        self.readable = tuple(map(Path, greeting["readable"]))

    @property
    def gone(self) -> bool:
        return self._process.poll() is not None or self._orders.fileno() < 0

    def fork(self, limits: Limits) -> Child:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                answer = self._order({"limits": asdict(limits)}, theirs)
            if "failed" in answer:
                raise OSError(answer["failed"])
        except (OSError, frames.Ended):
            ours.close()
            raise
        child = Child(self, answer["pid"], Path(answer["folder"]), ours)
        try:
            first = frames.receive(ours, ANSWER_BYTES, time.monotonic() + ORDER_SECONDS)
        except (frames.Ended, frames.Overdue):
            first = {"failed": "it ended before it was ready"}
        if "failed" in first:
            child.close()
            raise OSError(first["failed"])
        child.number = int(first["ready"])
        return child

    def is_over(self, pid: int) -> bool:
        try:
            return bool(self._order({"look": pid})["over"])
        except frames.Ended:
            return True

    def end(self, pid: int) -> End:
        try:
            return End(**self._order({"end": pid}))
        except frames.Ended:  # and its children with it
            return End(None)

    def close(self) -> None:
        """It ends its children and itself when nobody can give it orders any more."""
        self._orders.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _order(self, order: dict[str, Any], pipe: socket.socket | None = None) -> dict[str, Any]:
        """Raises frames.Ended. One that does not answer is given up: its next answer would be to an older order."""
        with self._lock:
            try:
                self._orders.settimeout(ORDER_SECONDS)
                socket.send_fds(self._orders, [json.dumps(order).encode()], [pipe.fileno()] if pipe else [])
                return frames.receive(self._orders, ANSWER_BYTES, time.monotonic() + ORDER_SECONDS)
            except (OSError, frames.Ended, frames.Overdue):
                self._orders.close()
                raise frames.Ended from None


def _command(number: int, level: str, task: Task) -> list[str]:
    """An isolated interpreter that finds the modules that this one finds."""
    paths = [str(Path(path).resolve()) for path in sys.path]
    start = f"import sys; sys.path[:] = {paths!r}; from workers.reward.sandbox.zygote import main; main()"
    return [sys.executable, "-I", "-B", "-c", start, str(number), level, task]
