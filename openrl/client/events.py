"""Server-sent events out of the bytes of a stream that may break anywhere. Does no I/O."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

#: After one of these nothing comes.
LAST: Final = frozenset({"end", "error"})
KEEP_ALIVE: Final = "keep-alive"


@dataclass(frozen=True, slots=True)
class Event:
    name: str  #: KEEP_ALIVE for a comment
    fields: dict[str, Any] = field(default_factory=dict)


class Reading:
    """What was read of a stream, over all its connections."""

    def __init__(self) -> None:
        self.over = False
        self._last_id = ""
        self._begin()

    def _begin(self) -> None:
        self._rest = bytearray()
        self._searched = 0
        self._lines: dict[bytes, bytes] = {}

    def reopen(self) -> dict[str, str]:
        """Headers of a request that goes on behind the last whole event; half an event is forgotten."""
        self._begin()
        return {"accept": "text/event-stream"} | ({"last-event-id": self._last_id} if self._last_id else {})

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that end in these bytes."""
        self._rest += data
        while not self.over and (end := self._rest.find(b"\n", self._searched)) >= 0:
            line = bytes(self._rest[:end]).removesuffix(b"\r")
            del self._rest[: end + 1]
            self._searched = 0
            if (event := self._take(line)) is not None:
                yield event
        self._searched = len(self._rest)

    def _take(self, line: bytes) -> Event | None:
        if line.startswith(b":"):
            return Event(KEEP_ALIVE)
        if line:
            name, _, value = line.partition(b":")
            self._lines[name] = value.removeprefix(b" ")
            return None
        lines, self._lines = self._lines, {}
        if b"data" not in lines:
            return None
        event = Event(lines.get(b"event", b"message").decode(), json.loads(lines[b"data"]))
        self._last_id = lines.get(b"id", b"").decode() or self._last_id
        self.over = event.name in LAST
        return event
