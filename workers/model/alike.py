"""Products that give a row the same bits whatever rows are beside it.

Libraries choose a kernel by the number of rows, and kernels add up in different orders. What a row gets in a block of
`BLOCK` rows is the measure here: other numbers of rows are used where a trial shows that they give the same, and blocks
where they do not. Each number of rows is tried once, on random rows with the layer's own weights. Kernels are chosen by
shapes and not by values, so that a trial of some ten thousand sums settles it for a process.
"""

from collections.abc import Callable, Hashable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 16  #: rows of the product that all others must equal
SUMS = 1 << 15  #: at least so many are compared in a trial: rounding to bfloat16 hides most differences
ROUNDS = 16  #: but no more passes than this

Product = Callable[[Tensor], Tensor]


class Alike:
    """What was tried on one model. For one thread."""

    def __init__(self) -> None:
        self._known: dict[Hashable, bool] = {}
        self._sizes: dict[Hashable, int] = {}

    def rows(self, key: Hashable, product: Product, x: Tensor) -> Tensor:
        """`product(x)` [n, out] for x [n, in], each row as in a block. `key` names the product's shape and dtypes."""
        count = len(x)
        size = self._size(key, product, x)
        if size == count:
            return product(x)
        if size > count:
            return product(F.pad(x, (0, 0, 0, size - count)))[:count]
        pieces = torch.split(x, size)
        whole = [product(piece) for piece in pieces if len(piece) == size]
        return torch.cat([*whole, *(self.rows(key, product, piece) for piece in pieces if len(piece) < size)])

    def known(self, key: Hashable, trial: Callable[[], bool]) -> bool:
        """What a trial said when it was first asked for."""
        if key not in self._known:
            self._known[key] = trial()
        return self._known[key]

    def _size(self, key: Hashable, product: Product, x: Tensor) -> int:
        """Rows that a product of x may take at once; more than x has: x is filled up."""
        place = (key, len(x))
        if place not in self._sizes:
            self._sizes[place] = next(filter(partial(self._fits, key, product, x), sizes(len(x))), 1)
        return self._sizes[place]

    def entries(self, x: Tensor, weights: Tensor) -> Tensor:
        """Products [u, m, out] of x [u, m, in] with weights [u, in, out], each as it would be alone."""
        key = ("entries", x.shape, weights.shape[2], x.dtype)
        if len(x) == 1 or self.known(key, lambda: entry_trial(x, weights)):
            return torch.bmm(x, weights)
        return torch.cat([torch.bmm(*pair) for pair in zip(torch.split(x, 1), torch.split(weights, 1), strict=True)])

    def _fits(self, key: Hashable, product: Product, x: Tensor, size: int) -> bool:
        return self.known((key, size), lambda: row_trial(product, x, size))


def sizes(count: int) -> list[int]:
    """Numbers of rows to try for `count` rows, best first."""
    powers = [1 << bit for bit in reversed(range(count.bit_length())) if BLOCK < 1 << bit < count]
    return list(dict.fromkeys([count, *powers, BLOCK]))


def row_trial(product: Product, like: Tensor, count: int) -> bool:
    """Whether a product of `count` rows gives each what it gets in a block, at another place of it."""
    generator = torch.Generator().manual_seed(count)
    whole = -(-count // BLOCK) * BLOCK
    for rounds in range(1, ROUNDS + 1):
        x = torch.randn(whole, like.shape[-1], generator=generator).to(like)
        blocks = torch.cat([product(block.flip(0)).flip(0) for block in torch.split(x, BLOCK)])
        mine = product(x[:count])
        if not torch.equal(mine, blocks[:count]):
            return False
        if mine.numel() * rounds >= SUMS:
            break
    return True


def entry_trial(like: Tensor, weights: Tensor) -> bool:
    """Whether a batched product gives each entry what it gets alone."""
    generator = torch.Generator().manual_seed(len(like))
    for _ in range(ROUNDS):
        x = torch.randn(like.shape, generator=generator).to(like)
        alone = torch.cat([torch.bmm(*pair) for pair in zip(torch.split(x, 1), torch.split(weights, 1), strict=True)])
        if not torch.equal(torch.bmm(x, weights), alone):
            return False
    return True
