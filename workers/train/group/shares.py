"""Which rows of a pack each rank computes: a pure decision over token bytes. Knows no tensors."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from workers.model.prefixes import stems
from workers.train.packing import ATTENTION, Row


def shares(texts: Mapping[Row, bytes], count: int, *, folds: bool) -> list[list[Row]]:
    """The rows in `count` shares that cost about the same; some may be empty. The same answer on every rank.

    Rows stand by batch and then by their tokens, four bytes each, and are cut in `count` pieces: so a share has few
    adapters, and where passes fold (`folds`) rows that begin alike are parted at a cut only.
    """
    rows = sorted(texts, key=lambda row: (row.batch, texts[row], row.place))
    costs = _costs(rows, texts) if folds else [float(row.length) for row in rows]
    each = sum(costs) / count
    found: list[list[Row]] = [[] for _ in range(count)]
    done = 0.0
    for row, cost in zip(rows, costs, strict=True):
        middle = done + cost / 2
        found[min(count - 1, int(middle / each))].append(row)
        done += cost
    return found


def _costs(rows: Sequence[Row], texts: Mapping[Row, bytes]) -> list[float]:
    """In tokens: the first of the rows that begin alike pays for what they share, the others for attention to it."""
    costs: list[float] = []
    for _, batch in groupby(rows, key=lambda row: row.batch):
        own = [texts[row] for row in batch]
        paid = [0.0] * len(own)
        for stem in stems(own):
            paid[stem.first] += stem.tokens
            for later in range(stem.first + 1, stem.last):
                paid[later] += ATTENTION * stem.tokens
        costs += paid
    return costs
