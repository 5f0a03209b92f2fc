"""What the passes of an engine were like, counted since it began."""

from dataclasses import dataclass


@dataclass(slots=True)
class PassCounts:
    passes: int = 0  #: that went through
    recomputed: int = 0  #: of them, with layers computed again in the backward pass
    exhausted: int = 0  #: that ran out of memory and were split
    tokens: int = 0  #: that the model ran
    padding: int = 0  #: of them, that only fill rows up

    @property
    def padding_share(self) -> float:
        """Of the tokens run, 0 to 1."""
        return self.padding / self.tokens if self.tokens else 0.0

    def passed(self, *, tokens: int, padding: int, recomputed: bool) -> None:
        self.passes += 1
        self.recomputed += recomputed
        self.tokens += tokens
        self.padding += padding
