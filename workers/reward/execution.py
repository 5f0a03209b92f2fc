"""How a reward function lets the model's code run: in another child, which knows nothing but the code and what to call.

That child may do to itself what it likes; it answers plain JSON values, and the function that asked compares them with
what only it knows.
"""

import socket
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from workers.reward.sandbox import frames

MOST_BYTES: Final = 1 << 20  #: that the model's code may answer


class Ending(StrEnum):
    """How the code's child ended."""

    ANSWERED = "answered"
    EXITED = "exited"  #: without an answer, by its own doing
    TIME = "time"  #: it took longer than it was given
    OUTPUT = "output"  #: it answered more than allowed, or no JSON
    DISK = "disk"  #: it wrote more than allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    ending: Ending
    results: tuple[dict[str, Any], ...] = ()  #: for each call `value` or `error`; what the code made of them
    detail: str = ""


_pipe: socket.socket | None = None


def connect(pipe: socket.socket) -> None:
    """Where this child asks for the run."""
    global _pipe
    _pipe = pipe


def run_python(code: str, calls: list[dict[str, Any]], *, seconds: float) -> Ran:
    """Run the code in a fresh child, then make the calls: each has `call` (a name) with `args` and `kwargs`, `eval` (an
    expression), or `stdin`, for which the code itself is run and what it printed is the value. For functions declared
    with `executes` only; anything else is an error of theirs."""
    assert _pipe is not None, "run_python works in a reward function's child only"
    frames.send(_pipe, {"run": {"code": code, "calls": calls}, "seconds": seconds})
    answer = frames.receive(_pipe, 2 * MOST_BYTES)
    results = answer["results"] if isinstance(answer["results"], list) else []
    wanted = [result if isinstance(result, dict) else {"error": "no result"} for result in results[: len(calls)]]
    return Ran(ending=Ending(answer["ending"]), results=tuple(wanted), detail=str(answer["detail"]))
