"""What a pack costs, learned from packs as they run, and how large one should be. Pure: told sizes and seconds.

A line is fitted: seconds = fixed + per_token * tokens + per_batch * batches, by least squares over relative errors, so
that small packs count like large ones, with less and less weight for older packs. What the packs seen so far leave open
is shared out evenly between the three parts of a full pack. Packing shares the fixed part alone. So a pack is large
enough as soon as its fixed part is small beside the rest: more batches would hardly get done sooner together, and these
would wait for them.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

#: A pack is worth making larger while an endless one would have this much more throughput. The last part is not worth
#: it: jobs that trained together sample together next and score together then, and the device has nothing to do.
GAIN: Final = 0.25
#: What a pack weighs after the next one was learned: half after 17.
FADING: Final = 0.96
#: Packs to learn before any verdict; until then packs are filled.
LEAST: Final = 6
#: Of so many packs one is a batch alone, and one is twice as large as it should be: packs of one size would teach
#: nothing of others.
TRY_EVERY: Final = 8
#: A full pack's batches, roughly; its tokens are the budget. Sizes are counted in these.
FULL_BATCHES: Final = 64
#: Ridge, of the sum of squares: decides only what the packs leave open.
RIDGE: Final = 1e-7


@dataclass(slots=True)
class Cost:
    full_tokens: int  #: a pack's budget
    #: seconds of a full pack: fixed, for its tokens, for its batches
    line: list[float] = field(default_factory=lambda: [0.0] * 3)
    packs: int = 0  #: learned so far
    _squares: list[list[float]] = field(default_factory=lambda: [[0.0] * 3 for _ in range(3)])
    _sums: list[float] = field(default_factory=lambda: [0.0] * 3)

    def learn(self, tokens: int, batches: int, seconds: float) -> None:
        """A pack has run. One that took no time teaches nothing."""
        if seconds <= 0:
            return
        self.packs += 1
        row = [part / seconds for part in self._size(tokens, batches)]
        for i in range(3):
            self._sums[i] = FADING * self._sums[i] + row[i]
            for j in range(3):
                self._squares[i][j] = FADING * self._squares[i][j] + row[i] * row[j]
        ridge = RIDGE * sum(self._squares[i][i] for i in range(3))
        self.line = np.linalg.solve(np.array(self._squares) + ridge * np.eye(3), self._sums).tolist()

    def enough(self, tokens: int, batches: int) -> bool:
        """Whether a pack of so many is as large as it should be."""
        trying = self.packs % TRY_EVERY
        if trying == TRY_EVERY // 2:
            return True
        if self.packs < LEAST:
            return False
        return self._pays_no_more(tokens, batches) if trying else self._pays_no_more(tokens // 2, batches // 2)

    def _pays_no_more(self, tokens: int, batches: int) -> bool:
        fixed, *others = (each * part for each, part in zip(self.line, self._size(tokens, batches), strict=True))
        return batches > 0 and fixed <= GAIN * sum(max(0.0, each) for each in others)

    def _size(self, tokens: int, batches: int) -> tuple[float, float, float]:
        return 1.0, tokens / self.full_tokens, batches / FULL_BATCHES
