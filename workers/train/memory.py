"""What an engine knows of its device's memory: what batches would need, what there is, and how passes went."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from openrl.domain.errors import DatumTooLarge, MemoryRanOut
from openrl.domain.losses import TARGETS
from workers.model import allocation, attention
from workers.model.base import BaseModel
from workers.model.layout import Group, LoraShape, WholeShape
from workers.train.batch import Batch
from workers.train.budget import Budget
from workers.train.counts import PassCounts
from workers.train.estimate import FLOAT, Kernels, Learning, Load, peak_bytes
from workers.train.logprobs import CHUNK_ELEMENTS
from workers.train.packing import Holds, Portion

#: A batch and what learns from it. Several of a pack have adapters; a whole model is alone in its pack.
Member: TypeAlias = tuple[Batch, LoraShape | WholeShape]


class Memory:
    def __init__(self, base: BaseModel, fixed_bytes: int | None = None) -> None:
        """`fixed_bytes` is what passes may take; None looks how much is free."""
        self._size, self._device, self._kernels = base.size, base.device, kernels_of(base)
        # Linux lets a process have memory that is not there, and ends it later.
        kills = base.device.type == "cpu"
        self.budget = Budget(lambda: allocation.available_bytes(self._device), fixed=fixed_bytes, kills=kills)
        self.counts = PassCounts()

    def need(self, members: Sequence[Member], load: Load, *, recompute: bool) -> int:
        """Bytes of a pass of these batches at its peak, all of one kind, forward only or not."""
        train = not members[0][0].forward_only
        learning = self._learning([shape for _, shape in members])
        return peak_bytes(self._size, load, self._kernels, learning, train=train, recompute=recompute)

    def holds(self, members: Sequence[Member], room: int) -> Holds:
        """Whether passes of a pack of these batches fit into `room`, beside what lies there for the whole pack."""
        left = room - sum(kept_bytes(each) for each in members)
        choices = max(batch.choices for batch, _ in members)
        learning, train = self._learning([shape for _, shape in members]), not members[0][0].forward_only

        def fits(load: Load, recompute: bool) -> bool:
            wide = replace(load, choices=choices)
            return peak_bytes(self._size, wide, self._kernels, learning, train=train, recompute=recompute) <= left

        return fits

    def portion(self, member: Member) -> Portion:
        batch, _ = member
        longest = batch.data[batch.longest].length
        return Portion(batch.tokens, kept_bytes(member), self._alone(member, longest, batch.choices))

    def problem(self, member: Member, room: int, least: Callable[[int], int] = int) -> DatumTooLarge | None:
        """The first of the batch's datums that no pass can ever hold; `room` is what a pack has now. `least` answers
        the least that any process has where this one has so many bytes."""
        portion = self.portion(member)
        if portion.kept + portion.least <= room:
            return None
        found = self._misfit(member, least(self.budget.ceiling))
        if found is None:
            return None
        allocation.let_go(self._device)  # some of it may be ours
        return self._misfit(member, least(self.budget.ceiling))

    def ran_out(self, member: Member, place: int) -> MemoryRanOut:
        """The error of a datum that was tried alone and failed."""
        return MemoryRanOut(place, member[0].data[place].length, self._needed(member, place))

    def relieve(self, needed: int) -> None:
        """After an allocation failed in a pass that was to need so many bytes, the pack's included."""
        self.counts.exhausted += 1
        self.budget.failed(needed)
        allocation.let_go(self._device)

    def _misfit(self, member: Member, most: int) -> DatumTooLarge | None:
        batch, ceiling = member[0], most - kept_bytes(member)
        sizes = [(datum.length, datum.inputs[TARGETS].elements // datum.length) for datum in batch.data]
        bad = {each for each in set(sizes) if self._alone(member, *each) > ceiling}
        place = next((place for place, each in enumerate(sizes) if each in bad), None)
        if place is None:
            return None
        return DatumTooLarge(place, batch.data[place].length, self._needed(member, place), most)

    def _needed(self, member: Member, place: int) -> int:
        datum = member[0].data[place]
        return kept_bytes(member) + self._alone(member, datum.length, datum.inputs[TARGETS].elements // datum.length)

    def _alone(self, member: Member, length: int, choices: int) -> int:
        """What a row takes by itself, in the way that takes least."""
        load = Load(rows=1, longest=length, tokens=length, choices=choices)
        return min(self.need([member], load, recompute=recompute) for recompute in (False, True))

    def _learning(self, shapes: Sequence[LoraShape | WholeShape]) -> Learning:
        adapters = [shape for shape in shapes if isinstance(shape, LoraShape)]
        if not adapters:
            return Learning(count=0, weight=max(shape.largest for shape in shapes if isinstance(shape, WholeShape)))
        rank = max(shape.rank for shape in adapters)
        inner = self._size.hidden + max(self._size.intermediate, self._size.queries)
        heads = any(shape.targets[-1].group is Group.UNEMBED for shape in adapters)
        head = rank * (self._size.hidden + self._size.vocab) if heads else 0
        return Learning(count=len(adapters), rank=rank, largest=rank * inner, head=head)


def kept_bytes(member: Member) -> int:
    """What lies there for a batch as long as its pack runs: its gradient."""
    batch, shape = member
    return 0 if batch.forward_only else FLOAT * shape.size


def kernels_of(base: BaseModel) -> Kernels:
    """How a device computes attention and the head."""
    kind = base.device.type
    ours = kind == "cpu" and base.size.item_bytes < FLOAT  # see `attention.py`
    return Kernels(
        chunk_elements=CHUNK_ELEMENTS[kind],
        keeps_scores=kind == "mps",  # PyTorch has no flash kernel for it
        scores_at_once=attention.SCORES if ours else 0,
        short=attention.LONGEST if ours else 0,
    )
