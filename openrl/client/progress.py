"""Bars of the batches that are being read, on terminals and in notebooks. One display for all of a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from openrl.client.groups import BatchState, Group

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

SHOWN_CHARS: Final = 8  #: of a batch's id

_lock = Lock()
_display: "Progress | None" = None
_bars = 0


class Bar:
    """One batch's."""

    def __init__(self, display: "Progress", batch_id: str) -> None:
        self._display = display
        self._rewards, self._dropped, self._sum = 0, 0, 0.0
        self._task = display.add_task(f"rollouts {batch_id[:SHOWN_CHARS]}", total=None, said="")

    def tell(self, state: BatchState) -> None:
        why = state.queue_reason or ""
        self._display.update(self._task, total=state.asked, said=self._said() if state.groups_done else why)

    def add(self, group: Group) -> None:
        self._rewards += len(group.rewards)
        self._sum += sum(group.rewards)
        self._dropped += len(group.dropped)
        self._display.update(self._task, advance=len(group.rollouts) + len(group.dropped), said=self._said())

    def _said(self) -> str:
        mean = f"reward {self._sum / self._rewards:.3f}" if self._rewards else "no reward yet"
        return f"{mean}, {self._dropped} dropped" if self._dropped else mean


@contextmanager
def bar(batch_id: str, wanted: bool | None) -> Iterator[Bar | None]:
    """A bar while the batch is read; None where it is not wanted, or nobody would see it (with `wanted` None)."""
    display = None if wanted is False else _open(wanted is True)
    if display is None:
        yield None
        return
    try:
        yield Bar(display, batch_id)
    finally:
        _close()


def _open(forced: bool) -> "Progress | None":
    global _display, _bars
    from rich.console import Console

    with _lock:
        if _display is None:
            console = Console(stderr=True)
            if not (forced or console.is_terminal or console.is_jupyter):
                return None
            _display = _progress(console)
            _display.start()
        _bars += 1
        return _display


def _close() -> None:
    """The last bar leaves the picture standing."""
    global _display, _bars
    with _lock:
        _bars -= 1
        if _bars == 0 and _display is not None:
            _display.stop()
            _display = None


def _progress(console: "Console") -> "Progress":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    said = TextColumn("{task.fields[said]}", markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), said)
    return Progress(*columns, console=console)
