"""What the device did of late, stretch by stretch, until it has been told. Written by whoever works on the device, told
by any thread."""

import time
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Final

from openrl.domain.stretch import Doing, Owner, Period, Stretch

MOST: Final = 1000  #: stretches kept until they are told
#: Decode steps no further apart follow one another. A pack in between takes longer.
NEXT_SECONDS: Final = 0.002


class Timeline:
    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        """`wall` is asked once: times never jump."""
        self._clock, self._ahead = clock, wall() - clock()
        self._lock, self._telling = Lock(), Lock()
        self._kept: list[Stretch] = []
        self._sampling: Stretch | None = None  #: may go on
        self._began, self._left_out = self.now(), 0

    def now(self) -> float:
        return self._clock() + self._ahead

    def note(self, doing: Doing, began: float, of: Iterable[Owner] = ()) -> None:
        """Something that began then has ended now."""
        stretch = Stretch(doing=doing, began=began, ended=self.now(), of=frozenset(of))
        with self._lock:
            if doing is not Doing.SAMPLE:
                self._keep(stretch)
            elif self._sampling is not None and follows(self._sampling, stretch):
                self._sampling = Stretch(doing=doing, began=self._sampling.began, ended=stretch.ended, of=stretch.of)
            else:
                self._end_sampling()
                self._sampling = stretch

    def tell(self, to: Callable[[Period], object]) -> None:
        """Hand over all that ended since the last time; what `to` raises on is told again with the next."""
        with self._telling:
            with self._lock:
                self._end_sampling()
                count, left_out = len(self._kept), self._left_out
                stretches = sorted(self._kept, key=lambda stretch: stretch.ended)
                period = Period(began=self._began, ended=self.now(), stretches=tuple(stretches), left_out=left_out)
            to(period)
            with self._lock:
                del self._kept[:count]
                self._left_out -= left_out
                self._began = period.ended

    def _end_sampling(self) -> None:
        if self._sampling is not None:
            self._keep(self._sampling)
            self._sampling = None

    def _keep(self, stretch: Stretch) -> None:
        if len(self._kept) < MOST:
            self._kept.append(stretch)
        else:
            self._left_out += 1


def follows(sampled: Stretch, more: Stretch) -> bool:
    """Whether the same samples went on at once."""
    return more.of == sampled.of and more.began - sampled.ended <= NEXT_SECONDS
