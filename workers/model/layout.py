"""Where adapters may sit in a base model, and how one adapter, or all weights, lie in one flat vector. No torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from openrl.domain.errors import FieldInvalid
from openrl.domain.run import LoraSpec

ALPHA = 32.0  #: LoRA's alpha, the same for every run: the delta is (ALPHA / rank) · B · A · x


class Group(StrEnum):
    ATTN = "attn"
    MLP = "mlp"
    UNEMBED = "unembed"


@dataclass(frozen=True, slots=True)
class Target:
    """A linear layer that an adapter may change."""

    name: str  #: module path, such as model.layers.0.self_attn.q_proj
    in_features: int
    out_features: int
    group: Group


@dataclass(frozen=True)
class ModelLayout:
    """All targets of a base model, in the order in which they compute."""

    targets: tuple[Target, ...]

    @cached_property
    def by_name(self) -> dict[str, Target]:
        return {target.name: target for target in self.targets}


@dataclass(frozen=True, slots=True)
class Slices:
    """Where one target's A [rank, in_features] and B [out_features, rank] lie in the flat vector, row-major."""

    a: slice
    b: slice
    target: Target


class LoraShape:
    """One adapter's form: a rank and a set of targets. Shapes of one layout are equal when rank and targets are.

    `size` is the length of the flat float32 vector that holds the adapter: for each target in layout order A, then B.
    """

    def __init__(self, layout: ModelLayout, rank: int, targets: Iterable[str]) -> None:
        """`targets` are module paths. Raises FieldInvalid for an unknown path, none at all, or a rank below 1."""
        wanted = set(targets)
        unknown = wanted - layout.by_name.keys()
        if unknown:
            raise FieldInvalid("lora_config", f"the base model has no linear layer {min(unknown)!r}")
        if not wanted:
            raise FieldInvalid("lora_config", "at least one of train_attn, train_mlp, train_unembed must be true")
        if rank < 1:
            raise FieldInvalid("lora_config.rank", f"is {rank}; it must be at least 1")
        self.layout, self.rank = layout, rank
        self.targets = tuple(target for target in layout.targets if target.name in wanted)
        self._slices, self.size = _laid_out(self.targets, rank)
        self.names = tuple(target.name for target in self.targets)
        self._key = (rank, self.names)

    @classmethod
    def of(cls, layout: ModelLayout, spec: LoraSpec) -> "LoraShape":
        """The shape that a run's LoraSpec asks for."""
        chosen = {Group.ATTN: spec.train_attn, Group.MLP: spec.train_mlp, Group.UNEMBED: spec.train_unembed}
        return cls(layout, spec.rank, [target.name for target in layout.targets if chosen[target.group]])

    @property
    def scale(self) -> float:
        return ALPHA / self.rank

    def slices(self, name: str) -> Slices | None:
        """Where the target lies, or None if this adapter leaves it alone."""
        return self._slices.get(name)

    def parts(self, name: str) -> tuple[slice, slice]:
        """The slices of A and B of a target of this shape."""
        return self._slices[name].a, self._slices[name].b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoraShape) and self._key == other._key and self.layout == other.layout

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"LoraShape(rank={self.rank}, targets={len(self.targets)}, size={self.size})"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeShape:
    """All weights of a model, in a flat vector of `size` elements."""

    size: int
    largest: int  #: elements of the largest weight


def _laid_out(targets: tuple[Target, ...], rank: int) -> tuple[dict[str, Slices], int]:
    slices, start = {}, 0
    for target in targets:
        middle = start + rank * target.in_features
        end = middle + target.out_features * rank
        slices[target.name] = Slices(slice(start, middle), slice(middle, end), target)
        start = end
    return slices, start
