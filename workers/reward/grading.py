"""One op's texts, scored: asks a child text by text, and has the model's code run where the function asks for that.

A child that dies, hangs or floods is no score: GraderFailed. One that computes all its time away was made to by its
text: Overrun. The model's code that does such things in its own child is a result like any other, for the function to
judge; unless that child was killed from outside, or the machine had no time for it.
"""

import math
import signal
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from openrl.domain.errors import AnswerUnreadable, FieldInvalid, GraderFailed, RewardFailed
from openrl.domain.op import ScoreTexts
from openrl.rewards import Declared, RewardResult
from workers.reward.execution import MOST_BYTES, Ending
from workers.reward.patience import MOST_TIMES, Over, Patience
from workers.reward.plain import legible, plain
from workers.reward.sandbox import frames
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.nursery import Child, End, Nursery

#: That a run of the model's code may be given at most.
RUN_SECONDS: Final = 60.0
ERROR_CHARS: Final = 2000  #: of what a child says went wrong


class Overrun(Exception):
    """Scoring a text took the processor for longer than the function gives one. Fact: the text's place."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Overfull(Exception):
    """The files in a child's folder are more than allowed."""


class Grading:
    """Scores texts of one op in one child; may be ended from another thread."""

    def __init__(self, nursery: Nursery, child: Child, declared: Declared, action: ScoreTexts) -> None:
        self._nursery, self._child, self._declared, self._action = nursery, child, declared, action
        self._lock = threading.Lock()
        self._children = [child]
        self._why: Exception | None = None
        self._told_context: dict[str, str] | None = None  #: to the child, last

    def call_off(self, why: Exception) -> None:
        """End what is under way; `score` raises that."""
        with self._lock:
            self._why = self._why or why
            children = tuple(self._children)
        for child in children:
            child.end()

    def scores(self, places: Sequence[int]) -> Iterator[RewardResult]:
        """Those of the texts at these places. Raises FieldInvalid, GraderFailed, Overrun, RewardFailed, and what
        `call_off` was given."""
        try:
            yield from self._scores(places)
        except (GraderFailed, Overrun, RewardFailed):
            self._child.end()  # whatever it is at, or has kept
            if self._why is not None:
                raise self._why from None
            raise

    def _scores(self, places: Sequence[int]) -> Iterator[RewardResult]:
        """A child that asks nothing back has its next text at hand when it has scored one."""
        ahead, asked = (0 if self._declared.executes else 1), 0
        for number, at in enumerate(places):
            patience = Patience(self._child, self._declared.seconds)
            with self._told(at):
                while asked < len(places) and asked <= number + ahead:
                    self._ask(places[asked], patience.until)
                    asked += 1
                answer = self._answer(at, patience)
            yield self._read(answer, at)

    def _ask(self, at: int, until: float) -> None:
        """With the context where it is another than that of the text before, which the child has."""
        action, context = self._action, self._action.contexts[at]
        asked: dict[str, Any] = {"reward": action.reward, "text": action.texts[at], "params": action.params}
        if context != self._told_context:
            asked["context"] = self._told_context = context
        self._child.ask(asked, until)

    def _answer(self, at: int, patience: Patience) -> dict[str, Any]:
        """The time of a run is not the function's."""
        while "run" in (answer := self._child.answer(patience.until, watch=patience.look)):
            began = time.monotonic()
            ran = self._run(answer, f"texts[{at}]")
            patience.forgive(time.monotonic() - began)
            self._child.ask(ran, patience.until)
        return answer

    @contextmanager
    def _told(self, at: int) -> Iterator[None]:
        """What becomes of the child, as what it means for the text."""
        where = f"texts[{at}]"
        try:
            yield
        except frames.Ended:
            self._child.await_end()
            raise GraderFailed(where, _ended(self._child.end())) from None
        except Over as over:
            if over.computing:
                raise Overrun(at) from None
            raise GraderFailed(where, f"took longer than {self._declared.seconds:g} s") from None
        except frames.Overdue:
            raise GraderFailed(where, _starved(self._declared.seconds)) from None
        except (frames.Flooded, frames.Garbled):
            raise GraderFailed(where, "answered no score") from None

    def _read(self, answer: dict[str, Any], at: int) -> RewardResult:
        """Nothing is taken for granted: a function that came with the request has its child to itself."""
        if "exhausted" in answer:
            raise GraderFailed(f"texts[{at}]", "ran out of memory")
        if "invalid" in answer:
            field, problem = _words(answer["invalid"], 2)
            raise FieldInvalid(field.replace("context.", f"contexts[{at}].", 1), problem)
        if "unreadable" in answer:
            raise AnswerUnreadable(*_words([answer["unreadable"]], 1))
        if "bug" in answer:
            raise RewardFailed(self._action.reward, f"texts[{at}]", *_words([answer["bug"]], 1))
        try:
            return RewardResult(**plain(RewardResult(answer["value"], answer["parts"], answer["info"])))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            raise GraderFailed(f"texts[{at}]", "answered no score") from None

    def _run(self, order: dict[str, Any], where: str) -> dict[str, Any]:
        if not self._declared.executes:
            raise RewardFailed(self._action.reward, where, "it runs code and does not declare `executes`")
        seconds = min(float(order["seconds"]), RUN_SECONDS)
        limits = Limits(cpu_seconds=math.ceil(seconds), memory_bytes=512 << 20)
        runner, on_disk = self._begun(limits), self._nursery.level is not Level.STRONG
        try:
            return _run_in(runner, order["run"], seconds, limits, where, on_disk=on_disk)
        finally:
            runner.close()
            with self._lock:
                self._children.remove(runner)

    def _begun(self, limits: Limits) -> Child:
        runner = self._nursery.fork("execute", limits)
        with self._lock:
            self._children.append(runner)
            called_off = self._why is not None
        if called_off:
            runner.end()
        return runner


def _run_in(
    runner: Child, order: dict[str, Any], seconds: float, limits: Limits, where: str, *, on_disk: bool
) -> dict[str, Any]:
    """What becomes of the model's code; `execution.Ran` as JSON."""
    patience = Patience(runner, seconds)

    def watch() -> None:
        patience.look()
        if on_disk:
            _look_into(runner.folder, limits)

    try:
        runner.ask(order, patience.until)
        results = runner.answer(patience.until, MOST_BYTES, watch).get("results")
        return {"ending": Ending.ANSWERED, "results": results, "detail": ""}
    except frames.Ended:
        runner.await_end()
        ending, detail = _own_doing(runner.end(), limits, where)
    except frames.Overdue:
        raise GraderFailed(where, _starved(seconds)) from None
    except Over:
        ending, detail = Ending.TIME, f"longer than {seconds:g} s"
    except (frames.Flooded, frames.Garbled):
        ending, detail = Ending.OUTPUT, "no answer, or one too long"
    except Overfull:
        ending, detail = Ending.DISK, f"more than {limits.disk_bytes >> 20} MiB or {limits.files} files"
    return {"ending": ending, "results": [], "detail": detail}


def _own_doing(end: End, limits: Limits, where: str) -> tuple[Ending, str]:
    """How the code ended itself. Raises GraderFailed where something else did: the code cannot send signals, and one
    that nobody can ignore comes of its own time limit only."""
    if not end.by_itself:
        return Ending.EXITED, "it closed its pipe"
    used_up = end.cpu_seconds >= limits.cpu_seconds * 0.98
    if end.status == -signal.SIGXCPU or (end.status == -signal.SIGKILL and used_up):
        return Ending.TIME, f"more than {limits.cpu_seconds} s of the processor"
    if end.status is None or end.status == -signal.SIGKILL:
        raise GraderFailed(where, _ended(end))
    return Ending.EXITED, _status(end.status)


def _words(told: object, count: int) -> list[str]:
    """So many words of bounded length, whatever was told."""
    words = [legible(word)[:ERROR_CHARS] for word in told[:count]] if isinstance(told, list) else []
    return [*words, *[""] * (count - len(words))]


def _ended(end: End) -> str:
    return "died" if end.status is None else f"died ({_status(end.status)})"


def _starved(seconds: float) -> str:
    return f"did not get {seconds:g} s of this machine within {MOST_TIMES * seconds:g}"


def _status(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


def _look_into(top: Path, limits: Limits) -> None:
    """Raises Overfull, for what cannot be looked at too. Files may come and go meanwhile."""
    count, size, folders = 0, 0, [top]
    while folders:
        try:
            for path in folders.pop().iterdir():
                facts = path.lstat()
                count, size = count + 1, size + facts.st_blocks * 512
                if count > limits.files or size > limits.disk_bytes:
                    raise Overfull
                if stat.S_ISDIR(facts.st_mode):
                    folders.append(path)
        except FileNotFoundError:
            continue
        except OSError:
            raise Overfull from None
