"""Who has room on the device: counts the bytes of runs by tier, and lets runs in as they came.

Knows runs as ids with sizes. Moving a state is somebody else's, who is told which one and where to; those that wait for
room do it themselves, each one run at a time, so that many leave at once.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from openrl.domain.errors import Draining
from openrl.domain.ids import RunId
from workers.train.tiers import Budgets, Move, Seen, Tier, moves

#: After a run that could not be moved: its op has just begun, or the depot does not answer.
PAUSE_SECONDS = 0.05


@dataclass(slots=True)
class _Stay:
    size: int
    busy: bool = False
    going: bool = False


@dataclass(slots=True)
class _Floor:
    """The runs of one tier, least recently used first."""

    runs: OrderedDict[RunId, _Stay] = field(default_factory=OrderedDict)
    used: int = 0  #: bytes
    going: int = 0  #: of those, bytes on their way out

    def put(self, run: RunId, stay: _Stay) -> None:
        self.pop(run)
        self.runs[run] = stay
        self.used += stay.size

    def pop(self, run: RunId) -> _Stay | None:
        stay = self.runs.pop(run, None)
        if stay is not None:
            self.stays(stay)
            self.used -= stay.size
        return stay

    def goes(self, stay: _Stay) -> None:
        stay.going = True
        self.going += stay.size

    def stays(self, stay: _Stay) -> None:
        if stay.going:
            stay.going = False
            self.going -= stay.size

    def seen(self) -> Iterator[Seen]:
        for run, stay in self.runs.items():
            yield Seen(run=run, size=stay.size, busy=stay.busy or stay.going)


@dataclass(slots=True, eq=False)
class _Ticket:
    """A place in the line."""

    run: RunId
    size: int


class Room:
    """`move` moves a run's state and answers the bytes that it takes there, or None if it could not. A run in the depot
    is none of this room."""

    def __init__(self, budgets: Budgets, move: Callable[[RunId, Tier], int | None]) -> None:
        self._budgets, self._move = budgets, move
        self._changed = threading.Condition()  #: guards all that follows
        self._device, self._host = _Floor(), _Floor()
        self._line: deque[_Ticket] = deque()
        self._wanted = 0  #: bytes that the line waits for
        self._closed = False

    def take(self, run: RunId, size: int) -> None:
        """Room on the device for a run, which is at work from now on. Waits until it is the run's turn and others have
        made room; a run larger than the budget is let in when it has the device to itself. A run that has a place
        already gets what it asks for at once: whoever waits might wait for it. Raises Draining."""
        with self._changed:
            if (stay := self._device.pop(run)) is not None:
                self._device.put(run, _Stay(max(size, stay.size), busy=True))
                return
            if run in self._host.runs:
                self._host.runs[run].busy = True
            ticket = _Ticket(run, size)
            self._line.append(ticket)
            self._wanted += size
        try:
            while (move := self._next(ticket)) is not None:
                self._carry_out(move)
        finally:
            self._leave(ticket)

    def rest(self, run: RunId, size: int) -> None:
        """The run's op has ended; it is the one used last, and so large."""
        with self._changed:
            floor = self._device if run in self._device.runs else self._host
            if floor.pop(run) is not None:
                floor.put(run, _Stay(size))
            self._changed.notify_all()

    def gone(self, run: RunId) -> None:
        """The run is not in this process any more."""
        with self._changed:
            self._device.pop(run)
            self._host.pop(run)
            self._changed.notify_all()

    def close(self) -> None:
        """Whoever waits, now or later, gets Draining."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def used(self, tier: Tier) -> int:
        """Bytes of the runs there."""
        return {Tier.DEVICE: self._device, Tier.HOST: self._host}[tier].used

    # ------------------------------------------------------------------------------------------ inside
    def _next(self, ticket: _Ticket) -> Move | None:
        """What the one in line can do about the room it needs; None once it has it."""
        with self._changed:
            while True:
                if self._closed:
                    raise Draining
                if self._line[0] is ticket and self._fits(ticket.size):
                    self._leave(ticket)
                    self._host.pop(ticket.run)
                    self._device.put(ticket.run, _Stay(ticket.size, busy=True))
                    return None
                if (move := self._first_move()) is not None:
                    return move
                self._changed.wait()

    def _leave(self, ticket: _Ticket) -> None:
        with self._changed:
            if ticket in self._line:
                self._line.remove(ticket)
                self._wanted -= ticket.size
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._device.runs or self._device.used + size <= self._budgets.device

    def _first_move(self) -> Move | None:
        wanted = min(self._wanted, self._budgets.device)
        excess = self._device.used - self._device.going + wanted - self._budgets.device
        found = moves(self._device.seen(), self._host.seen(), excess=excess, host_left=self._host_left())
        if not found:
            return None
        floor = self._device if found[0].run in self._device.runs else self._host
        floor.goes(floor.runs[found[0].run])
        return found[0]

    def _host_left(self) -> int | None:
        if self._budgets.host is None:
            return None
        return self._budgets.host - self._host.used + self._host.going

    def _carry_out(self, move: Move) -> None:
        size = None
        try:
            size = self._move(move.run, move.to)
        finally:
            self._settle(move, size)
        if size is None:
            time.sleep(PAUSE_SECONDS)

    def _settle(self, move: Move, size: int | None) -> None:
        """A run that did not move goes behind the others."""
        with self._changed:
            floor = self._device if move.run in self._device.runs else self._host
            stay = floor.runs.get(move.run)
            if stay is not None and stay.going:
                floor.pop(move.run)
                if size is None:
                    floor.put(move.run, stay)
                elif move.to is Tier.HOST:
                    self._host.put(move.run, _Stay(size))
            self._changed.notify_all()
