"""Runs the model's code in this process, which is given up to it."""

import contextlib
import io
import json
import sys
from typing import Any, Final

_WORDS: Final = 300  #: of an error that is told
_OUTPUT: Final = 1 << 18  #: characters that are kept of what the code prints


class _Bounded(io.StringIO):
    """Takes as much as is kept, then refuses."""

    def write(self, text: str) -> int:
        if self.tell() + len(text) > _OUTPUT:
            raise OSError("printed more than allowed")
        return super().write(text)


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer to `execution.run_python`'s order."""
    code, calls = asked["code"], asked["calls"]
    scripts = [call for call in calls if "stdin" in call]
    if scripts:
        return {"results": [_script(code, call["stdin"]) for call in calls]}
    space: dict[str, Any] = {"__name__": "answer"}
    problem = _attempt(lambda: exec(compile(code, "answer.py", "exec"), space))
    if "error" in problem:
        return {"results": [problem] * len(calls)}
    return {"results": [_attempt(lambda call=call: _called(space, call)) for call in calls]}


def _called(space: dict[str, Any], call: dict[str, Any]) -> Any:
    if "eval" in call:
        return eval(call["eval"], space)
    return space[call["call"]](*call.get("args", ()), **call.get("kwargs", {}))


def _script(code: str, stdin: str) -> dict[str, Any]:
    """What the code prints when it is run with that input."""
    out = _Bounded()
    before, sys.stdin = sys.stdin, io.StringIO(stdin)
    try:
        with contextlib.redirect_stdout(out):
            done = _attempt(lambda: exec(compile(code, "answer.py", "exec"), {"__name__": "__main__"}), exits=True)
    finally:
        sys.stdin = before
    return done if "error" in done else {"value": out.getvalue()}


def _attempt(work: Any, *, exits: bool = False) -> dict[str, Any]:
    try:
        value = work()
        json.dumps(value)
    except SystemExit as error:
        return {"value": None} if exits and error.code in (None, 0) else {"error": f"SystemExit: {error.code}"[:_WORDS]}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"[:_WORDS]}
    return {"value": value}
