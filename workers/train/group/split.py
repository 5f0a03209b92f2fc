"""A pack computed by all ranks of a group: each runs its rows, then everybody has what one process would have."""

from collections import defaultdict

from workers.model.base import BaseModel
from workers.model.sharding import idle_pass
from workers.train.group.link import Link
from workers.train.group.shares import shares
from workers.train.group.verbs import Part, decode_part, encode
from workers.train.pack import Pack
from workers.train.packing import Holds


class Split:
    """What a TrainEngine takes as `sharing`. All ranks must hand it the same packs in the same order."""

    def __init__(self, base: BaseModel, link: Link) -> None:
        self._base, self._link = base, link

    def room(self, mine: int) -> int:
        """So that all ranks refuse the same datums."""
        return -self._link.most(-mine)

    def finish(self, pack: Pack, pack_tokens: int, holds: Holds) -> None:
        """Sums, log-probabilities and gradients are whole after. Raises MemoryError where memory ends: ranks that tried
        again in parts would fall out of step.

        What is not finite on one rank is so on all: so they judge a batch alike.
        """
        rank, count = self._link.rank, self._link.world
        rows = shares(pack.rows, count, folds=self._base.folds)[rank]
        mine = list(pack.passes(rows, max(1, pack_tokens // count), holds))
        rounds = self._link.most(len(mine))
        for one in mine:
            if not pack.run(one):
                raise MemoryError(f"a pass of {len(one.rows)} rows did not fit on rank {rank}")
        for _ in range(len(mine), rounds):
            idle_pass(self._base, train=pack.train)
        _merge(pack, [decode_part(data) for data in self._link.exchange(encode(_part(pack)))])
        self._link.add_up(pack.gradients)


def _part(pack: Pack) -> Part:
    found = [
        (number, place, values)
        for number, batch in enumerate(pack.logprobs)
        for place, values in enumerate(batch)
        if values is not None
    ]
    return Part(sums=[dict(sums) for sums in pack.sums], logprobs=found)


def _merge(pack: Pack, parts: list[Part]) -> None:
    """Added up in the order of ranks, so that everybody rounds alike."""
    for number in range(len(pack.sums)):
        whole: defaultdict[str, float] = defaultdict(float)
        for part in parts:
            for name, value in part.sums[number].items():
                whole[name] += value
        pack.sums[number] = whole
    for part in parts:
        for number, place, values in part.logprobs:
            pack.logprobs[number][place] = values
