"""How much memory passes may take: what is free, less after a pass ran out. Knows neither tensors nor devices."""

from collections.abc import Callable

#: Of free memory; the rest is for what moves meanwhile: gaps, snapshots, samples.
SHARE = 0.85
#: Where a pass of an estimate ran out, the next ones are at most this part of it.
LOWERED = 0.75
#: Packs without a failure after which a lowered budget is tried in full again; doubles with each trial.
PATIENCE = 16


class Budget:
    """Bytes for the passes of a pack, what lies there for the whole pack included."""

    def __init__(self, free: Callable[[], int], *, fixed: int | None = None, kills: bool = False) -> None:
        """`free` tells the bytes that may be taken now; `fixed` stands in its place. `kills`: where memory ends, the
        system ends the process, so that what is not there now must not be tried."""
        self._free, self._fixed, self._kills = free, fixed, kills
        self._most = 0 if fixed is not None else free()
        self._lowered: int | None = None
        self._patience, self._left = PATIENCE, 0

    def room(self, held: int = 0) -> int:
        """What a pack is planned with; `held` are those of its bytes that lie there already."""
        room = self._fixed if self._fixed is not None else int(SHARE * (self._free() + held))
        return room if self._lowered is None else min(room, self._lowered)

    @property
    def ceiling(self) -> int:
        """What a datum may need; never less because others failed."""
        if self._fixed is not None:
            return self._fixed
        now = self._free()
        return int(SHARE * (now if self._kills else max(now, self._most)))

    def failed(self, estimate: int) -> None:
        """A pass of that estimate, all included, ran out."""
        self._lowered = int(LOWERED * min(estimate, self._lowered or estimate))
        self._left = self._patience

    def pack_ended(self) -> None:
        """A pack went through without a failure."""
        if self._lowered is not None:
            self._left -= 1
            if self._left == 0:
                self._lowered, self._patience = None, self._patience * 2
