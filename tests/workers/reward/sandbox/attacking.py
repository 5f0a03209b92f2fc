"""What attacks are made with: code in a child behind walls, and what became of it."""

import json
import textwrap
from collections.abc import Callable
from typing import Any

from workers.reward.execution import Ending
from workers.reward.grading import _run_in
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.nursery import Child, Nursery

Ran = dict[str, Any]
Attack = Callable[..., Ran]

LIMITS = Limits(
    memory_bytes=256 << 20, cpu_seconds=10, file_bytes=1 << 20, disk_bytes=4 << 20, files=200, open_files=32
)


#: Makes what an attack came to the answer of a reward function sent as source.
TOLD = """
import json as _json
from openrl.rewards import FieldInvalid as _Told
def score(text, context, params):
    try: told = {"value": attempt()}
    except Exception as error: told = {"error": f"{type(error).__name__}: {error}"}
    raise _Told("told", _json.dumps(told))
"""


class Source:
    """A child that scores, asked as one that runs the model's code is."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def __getattr__(self, name: str) -> Any:
        return getattr(self._child, name)

    def ask(self, order: Ran, until: float) -> None:
        params = {"source": order["code"] + TOLD}
        self._child.ask({"reward": "source", "text": "", "context": {}, "params": params}, until)

    def answer(self, *how: Any) -> Ran:
        _, told = self._child.answer(*how).get("invalid", ["", "null"])
        return {"results": [json.loads(told)]}


def attack_on(nursery: Nursery, kind: str) -> Attack:
    """Runs code, then `attempt()`, in a child of its own; what becomes of it. The code is the model's (`execute`), or
    that of a reward function sent with a request (`source`)."""

    def attack(code: str, *, seconds: float = 10.0) -> Ran:
        child: Any = nursery.fork("execute", LIMITS) if kind == "execute" else Source(nursery.fork("score", LIMITS))
        order = {"code": textwrap.dedent(code), "calls": [{"call": "attempt"}]}
        on_disk = nursery.level is not Level.STRONG
        try:
            return _run_in(child, order, seconds, LIMITS, "texts[0]", on_disk=on_disk)
        finally:
            child.close()

    return attack


def result(ran: Ran) -> dict[str, Any]:
    assert ran["ending"] is Ending.ANSWERED, ran
    only: dict[str, Any] = ran["results"][0]
    return only


def refused(ran: Ran) -> bool:
    """An exception that tells of the system's refusal."""
    return result(ran).get("error", "").startswith(("PermissionError", "BlockingIOError", "OSError: [Errno 38]"))
