"""What a load and the bench that started it tell each other: JSON, one object a line. Standard library only."""

import json
import os
import sys
from collections.abc import Iterator
from typing import IO, Any

_kept: list[IO[str]] = [sys.stdout]  #: the last one is what the bench reads


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), file=_kept[-1], flush=True)


def told() -> Iterator[dict[str, Any]]:
    """What the bench asks for, up to an empty line."""
    for line in sys.stdin:
        if not line.strip():
            return
        yield json.loads(line)


def keep_stdout() -> None:
    """From here on only `tell` writes there: what libraries and their processes print goes to the standard error. Some
    put words of their own in front of all that `sys.stdout` is given."""
    _kept.append(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
