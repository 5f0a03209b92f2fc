"""Runs the model's code in this process, which is given up to it."""

import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Final

_WORDS: Final = 300  #: of an error that is told
_OUTPUT: Final = 1 << 18  #: bytes that are kept of what the code prints


class _Bounded(io.BytesIO):
    """Takes as much as is kept, then refuses."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > _OUTPUT:
            raise OSError("printed more than allowed")
        return super().write(data)


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer to `execution.run_python`'s order."""
    code, calls = asked["code"], asked["calls"]
    if any("stdin" in call for call in calls):
        return {"results": [_script(code, call["stdin"]) for call in calls]}
    space = _space("answer")
    problem = _attempt(lambda: exec(compile(code, "answer.py", "exec"), space))
    if "error" in problem:
        return {"results": [problem] * len(calls)}
    return {"results": [_attempt(partial(_called, space, call)) for call in calls]}


def _space(name: str) -> dict[str, Any]:
    """Of a module that can be found by its name, as classes look for theirs."""
    module = sys.modules[name] = ModuleType(name)
    return module.__dict__


def _called(space: dict[str, Any], call: dict[str, Any]) -> Any:
    if "eval" in call:
        return eval(call["eval"], space)
    return space[call["call"]](*call.get("args", ()), **call.get("kwargs", {}))


def _script(code: str, stdin: str) -> dict[str, Any]:
    """What the code prints when it is run with that input, however it reads and writes."""
    kept, standard = _Bounded(), (sys.stdin, sys.stdout)
    out = io.TextIOWrapper(kept, "utf-8", write_through=True)  # which closes what it writes to when it goes
    nowhere = os.dup(0)
    with tempfile.TemporaryFile() as file:
        file.write(stdin.encode())
        file.seek(0)
        os.dup2(file.fileno(), 0)
    try:
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), out
        done = _attempt(lambda: exec(compile(code, "answer.py", "exec"), _space("__main__")), exits=True)
    finally:
        sys.stdin, sys.stdout = standard
        os.dup2(nowhere, 0)
        os.close(nowhere)
    return done if "error" in done or out.closed else {"value": kept.getvalue().decode("utf-8", "replace")}


def _attempt(work: Callable[[], Any], *, exits: bool = False) -> dict[str, Any]:
    try:
        value = work()
        json.dumps(value)
    except SystemExit as error:
        return {"value": None} if exits and error.code in (None, 0) else {"error": f"SystemExit: {error.code}"[:_WORDS]}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"[:_WORDS]}
    return {"value": value}
