"""How long a child is waited for: by its own time, in which the machine did what the child asked for.

A machine that is busy with others makes a child stand ready and wait; that is neither the text's fault nor the code's.
"""

import time
from typing import Final, Protocol

from workers.reward.sandbox.spent import Spent

#: However busy the machine is, nobody waits longer than so many times what was given.
MOST_TIMES: Final = 10.0
#: A child that ran for this share of its own time was computing.
_BUSY_SHARE: Final = 0.5


class Over(Exception):
    """The child has used up its own time. Fact: whether it was computing."""

    def __init__(self, computing: bool) -> None:
        super().__init__(computing)
        self.computing = computing


class Told(Protocol):
    def spent(self) -> Spent | None:
        """None where the system does not tell."""


class Patience:
    """With one child, for so many seconds of its own, from now on: those in which it ran, and those in which it slept.
    Where the system does not tell what a child had of the machine, all time is its own, and nobody knows that it was
    computing."""

    def __init__(self, child: Told, seconds: float) -> None:
        self._child, self._seconds = child, seconds
        self._began = time.monotonic()
        self._first: tuple[float, Spent | None] | None = None
        self._slept = 0.0
        self.until = self._began + MOST_TIMES * seconds  #: whatever the machine does

    def forgive(self, seconds: float) -> None:
        """So long it waited for somebody else."""
        self._began += seconds
        self.until += seconds
        if self._first is not None:
            self._first = self._first[0] + seconds, self._first[1]

    def look(self) -> None:
        """To be called now and then while the child is awaited. Raises Over. Time counts from the first call on."""
        now, spent = time.monotonic(), self._child.spent()
        if self._first is None:
            self._first = now, spent
        since, first = self._first
        if spent is None or first is None:
            if now - self._began >= self._seconds:
                raise Over(computing=False)
            return
        ran, stood = spent.ran_seconds - first.ran_seconds, spent.stood_seconds - first.stood_seconds
        if not spent.ready:  # the system adds up how long it stood when it is let run again
            self._slept = max(self._slept, now - since - ran - stood)
        if ran + self._slept >= self._seconds:
            raise Over(computing=ran >= _BUSY_SHARE * (ran + self._slept))
