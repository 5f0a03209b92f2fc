"""Which waiting samples come into the batch, and which prompts share a prefill pass. Pure: no tensors, no clocks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wish:
    """What one waiting request still wants."""

    rows: int  #: samples not placed yet that need a row in the cache; 0 needs a pass only
    length: int  #: tokens that each of them may come to hold in the cache
    prompt: int  #: tokens to compute before the first can be drawn; 0 if a row in the batch has them
    ready: bool = True  #: its weights are there


@dataclass(frozen=True, slots=True)
class Room:
    """What is free."""

    rows: int  #: in use
    length: int  #: tokens the longest row in use may come to hold
    max_rows: int
    cache_tokens: int
    prefill_tokens: int  #: bound on prompt tokens computed before the next decode step; one prompt always goes


def admit(wishes: Iterable[Wish], room: Room) -> list[int]:
    """How many rows each wish gets, first come first served; -1 for one that has to wait. Answers as many wishes as it
    looked at: the first ready one that does not fit holds back those behind it, so that big requests are not starved.
    """
    granted: list[int] = []
    rows, length, prefilled = room.rows, room.length, 0
    for wish in wishes:
        if not wish.ready:
            granted.append(-1)
            continue
        longest = max(length, wish.length if wish.rows else 0)
        count = min(wish.rows, max(0, fitting(longest, room) - rows))
        over = prefilled > 0 and prefilled + wish.prompt > room.prefill_tokens
        if over or (wish.rows and not count):
            break
        granted.append(count)
        if count < wish.rows:
            break
        rows, length, prefilled = rows + count, longest, prefilled + wish.prompt
    return granted


def fitting(length: int, room: Room) -> int:
    """Rows of `length` tokens that the cache holds when it is empty."""
    return min(room.max_rows, room.cache_tokens // length) if length else room.max_rows


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
