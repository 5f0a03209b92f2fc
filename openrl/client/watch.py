"""What is made of the events of one batch while it is read. Does no I/O; blocking and other clients share it."""

from collections.abc import Iterator
from contextlib import contextmanager

from openrl.client.errors import BatchFailed, RequestRefused
from openrl.client.events import KEEP_ALIVE, Event
from openrl.client.groups import BatchState, Group
from openrl.client.progress import Bar, bar


class Watch:
    def __init__(self, bar: Bar | None) -> None:
        self._bar = bar

    @property
    def shown(self) -> bool:
        """Whether somebody sees a bar, who should be told how the batch stands when it is silent."""
        return self._bar is not None

    def asks(self, event: Event) -> bool:
        return self.shown and event.name == KEEP_ALIVE

    def tell(self, state: BatchState) -> None:
        if self._bar is not None:
            self._bar.tell(state)

    def group(self, event: Event) -> Group | None:
        """The event's group, if it is one. Raises BatchFailed, and RequestRefused where the batch expired meanwhile."""
        if event.name == "error":
            raise RequestRefused(404, event.fields["detail"])
        if event.name == "end":
            self._end(BatchState.of(event.fields))
        if event.name != "group":
            return None
        group = Group.of(event.fields)
        if self._bar is not None:
            self._bar.add(group)
        return group

    def _end(self, state: BatchState) -> None:
        self.tell(state)
        if state.status == "failed":
            raise BatchFailed(state.id, dict(state.dropped_by_reason))


@contextmanager
def watching(batch_id: str, progress: bool | None) -> Iterator[Watch]:
    with bar(batch_id, progress) as shown:
        yield Watch(shown)
