"""What the passes of an engine were like, counted since it began."""

from dataclasses import dataclass


@dataclass(slots=True)
class PassCounts:
    passes: int = 0  #: that went through
    recomputed: int = 0  #: of them, with layers computed again in the backward pass
    exhausted: int = 0  #: that ran out of memory and were split

    def passed(self, *, recomputed: bool) -> None:
        self.passes += 1
        self.recomputed += recomputed
