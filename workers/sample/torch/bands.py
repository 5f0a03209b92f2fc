"""Which rows of the batch attend together: rows of similar length, so that short ones do not read as many cells as the
longest has. Pure.

A row grows by one token in each step, as all do: bands last until a row comes or leaves. Bands lie side by side in the
cache, the longest rows' in front; within one, rows lie as they happen to.
"""

from collections.abc import Sequence

CLOSE = 0.7  #: rows shorter than so much of a band's longest may be in another


def sizes(lengths: Sequence[int], worth: int) -> list[int]:
    """How many rows each band has, for `lengths` in falling order: another band begins where it saves `worth` cells."""
    bands: list[int] = []
    longest = 0
    for index, length in enumerate(lengths):
        saved = (longest - length) * (len(lengths) - index)
        if not bands or (length < CLOSE * longest and saved >= worth):
            bands.append(0)
            longest = length
        bands[-1] += 1
    return bands


def arranged(lengths: Sequence[int], worth: int) -> tuple[list[range], dict[int, int]]:
    """The bands' rows, for rows of such lengths in any order, and which rows move: where from, by where to."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    bands: list[range] = []
    moves: dict[int, int] = {}
    for size in sizes([lengths[row] for row in order], worth):
        start = bands[-1].stop if bands else 0
        band = range(start, start + size)
        members = order[start : start + size]
        places = sorted(set(band) - set(members))
        moves |= dict(zip(places, sorted(row for row in members if row not in band), strict=True))
        bands.append(band)
    return bands, moves
