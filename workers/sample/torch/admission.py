"""How much fits: which rows the cache has room for, how many prompt tokens go before the next decode step, and which
prompts share a pass. Pure: no tensors, no clocks."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Vacancy:
    """What the cache has left, beside what is promised to rows in the batch or with their prompts on their way."""

    rows: int  #: promised
    length: int  #: tokens the longest of them may come to hold
    max_rows: int
    cache_tokens: int

    def fits(self, length: int) -> bool:
        """Whether one more row of `length` tokens does."""
        return self.rows < fitting(max(self.length, length), self.max_rows, self.cache_tokens)

    def take(self, length: int) -> None:
        self.rows, self.length = self.rows + 1, max(self.length, length)


def fitting(length: int, max_rows: int, cache_tokens: int) -> int:
    """Rows of `length` tokens that the cache holds when it is empty."""
    return min(max_rows, cache_tokens // length) if length else max_rows


def shares(left: Sequence[int], budget: int) -> list[int]:
    """How many tokens of each prompt go now, where so many of each are left, the oldest first: half the budget is the
    oldest's, so that it gets on, and the rest goes to the shortest, so that long ones do not hold them up. Others than
    the oldest are only cut into parts of a quarter of the budget or more: each part costs a pass."""
    given = [0] * len(left)
    if not left:
        return given
    oldest = min(left[0], max(1, budget // 2))
    rest = budget - oldest
    for index in sorted(range(1, len(left)), key=lambda index: left[index]):
        if left[index] <= rest or rest >= budget // 4:
            given[index] = min(left[index], rest)
            rest -= given[index]
    given[0] = min(left[0], oldest + rest)
    return given


def passes(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group prompts into passes of similar length: at most `budget` tokens with padding, padding at most a quarter
    (or 16 tokens a row). Each prompt is in exactly one pass, by index."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        longest = lengths[groups[-1][0]] if groups else 0
        close = longest - lengths[index] <= max(16, longest // 4)
        if groups and close and longest * (len(groups[-1]) + 1) <= budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
