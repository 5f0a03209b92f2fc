"""The turns of one run, for the ledger in memory: which have ended, which wait, which no snapshot has yet. Pure."""

from dataclasses import dataclass, field

from openrl.domain.ids import OpId


@dataclass(slots=True)
class Turns:
    next: int = 0  #: all before it have ended
    unsettled: dict[int, OpId] = field(default_factory=dict)  #: by turn
    journal: dict[int, OpId] = field(default_factory=dict)  #: applied since the newest snapshot, by turn
    ended: set[int] = field(default_factory=set)  #: of the turns to come
    gap_since: float | None = None  #: when the run began to wait for a turn that is not there

    @property
    def here(self) -> OpId | None:
        """The op of the next turn, if it is there."""
        return self.unsettled.get(self.next)

    def is_over(self, turn: int) -> bool:
        return turn < self.next or turn in self.ended

    def is_awaited(self, turn: int) -> bool:
        """Whether later ones wait for this very turn, which is not there."""
        return turn == self.next and self.gap_since is not None

    def add(self, turn: int, op: OpId, now: float) -> None:
        self.unsettled[turn] = op
        self._move_on(now)

    def end(self, turn: int, now: float) -> None:
        """Its op has settled, or there will be none."""
        self.unsettled.pop(turn, None)
        if turn >= self.next:
            self.ended.add(turn)
            self._move_on(now)

    def leave_gap(self, now: float, longest_seconds: float) -> bool:
        """Go on at the first turn that is there, if the run has waited for another for so long. Answers whether."""
        if self.gap_since is None or self.gap_since + longest_seconds > now:
            return False
        self.next = min(self.unsettled)
        self.ended = {turn for turn in self.ended if turn > self.next}
        self._move_on(now)
        return True

    def snapshotted(self, turn: int) -> None:
        """A snapshot has that turn and all before."""
        self.journal = {at: op for at, op in self.journal.items() if at > turn}

    def _move_on(self, now: float) -> None:
        while self.next in self.ended:
            self.ended.remove(self.next)
            self.next += 1
        if self.here is not None or not self.unsettled:
            self.gap_since = None
        elif self.gap_since is None:
            self.gap_since = now
