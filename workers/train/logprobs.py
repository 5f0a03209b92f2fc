"""Log-probabilities of target tokens from hidden states, and their gradient, in chunks of tokens.

A loss depends on a token's logits only through the log-probability of its target. So a chunk's logits can give their
gradient at once and be forgotten: no [tokens, vocab] tensor larger than one chunk ever exists and nothing is computed
twice. The price is that the gradient is written out by hand here, that of what learns on the head included. Softmax is
float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from workers.model.base import BaseModel

#: Logits of one chunk: small enough to stay near the processor's cache, large enough for efficient products.
CHUNK_ELEMENTS = {"cpu": 2**22, "cuda": 2**27, "mps": 2**25}

#: Takes log-probabilities [n, K] of the tokens from a position on; gives d loss / d log-probability.
Gradient = Callable[[Tensor, int], Tensor]


class HeadLayer(Protocol):
    """Something on the head that learns: an adapter (`spans.LoraLayer`), or the head's own weights."""

    def add_delta(self, x: Tensor, y: Tensor) -> Tensor:
        """Adds to the logits `y` [n, vocab] of hidden states `x` [n, width] what the head alone does not give, in
        place. Answers what `add_gradients` needs of it."""
        ...

    def add_gradients(self, x: Tensor, inner: Tensor, slope: Tensor, back: Tensor | None) -> None:
        """From `slope` = d loss / d y adds to its own gradients, and to `back`, that of x, what `add_delta` gave."""
        ...


@dataclass(frozen=True, slots=True)
class HeadPart:
    """What learns on the head from the tokens `start` to `stop`."""

    start: int
    stop: int
    layer: HeadLayer


@torch.no_grad()
def target_logprobs(
    base: BaseModel,
    hidden: Tensor,
    targets: Tensor,
    parts: Sequence[HeadPart] = (),
    gradient: Gradient | None = None,
    owners: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities [M, K] float32 of `targets` int64 [M, K], for last hidden states [N, width], at temperature 1.

    `owners` int64 [M], rising, says whose targets a row of them is; None if there is one row for each state.
    With `gradient` also d loss / d hidden [N, width], while the gradients of `parts` are added to. Tokens never
    influence each other here, so what is not finite stays with the part of its token.
    """
    chunk = max(1, CHUNK_ELEMENTS[hidden.device.type] // base.vocab_size)
    starts = list(range(0, len(hidden), chunk))
    firsts = starts if owners is None else torch.searchsorted(owners, owners.new_tensor(starts)).tolist()
    found, slopes = [], []
    for start, first, last in zip(starts, firsts, [*firsts[1:], len(targets)], strict=True):
        part = _Chunk(base, hidden[start : start + chunk], start, parts)
        found.append(part.logprobs(targets[first:last], None if owners is None else owners[first:last] - start))
        if gradient is not None:
            slopes.append(part.backward(gradient(found[-1], first)))
    return _whole(found), _whole(slopes) if slopes else None


class _Chunk:
    """Some consecutive tokens on their way through the head and back."""

    def __init__(self, base: BaseModel, hidden: Tensor, start: int, parts: Sequence[HeadPart]) -> None:
        self.head, self.softcap, self.hidden = base.unembed, base.softcap, hidden
        stop = start + len(hidden)
        self.parts = [
            (part.layer, slice(max(part.start - start, 0), min(part.stop, stop) - start))
            for part in parts
            if part.start < stop and start < part.stop
        ]
        self.inner: list[Tensor] = []  #: what each part's layer answered

    def logprobs(self, targets: Tensor, owners: Tensor | None) -> Tensor:
        self.targets, self.owners = targets, owners
        logits = F.linear(self.hidden, self.head.weight, self.head.bias)
        for layer, rows in self.parts:
            self.inner.append(layer.add_delta(self.hidden[rows], logits[rows]))
        self.logits = logits.float()
        if self.softcap is not None:
            self.logits.div_(self.softcap).tanh_().mul_(self.softcap)
        self.total = self.logits.logsumexp(1, keepdim=True)
        if owners is None:
            return self.logits.gather(1, targets) - self.total
        return self.logits[owners[:, None], targets] - self.total[owners]

    def backward(self, slope: Tensor) -> Tensor:
        """d loss / d hidden from `slope` = d loss / d log-probability of the targets. Uses the logits up."""
        bend = None if self.softcap is None else (self.logits / self.softcap).square_().neg_().add_(1)
        logits = self.logits.sub_(self.total).exp_()
        if self.owners is None:
            logits.mul_(-slope.sum(1, keepdim=True)).scatter_add_(1, self.targets, slope)
        else:
            logits.mul_(-torch.zeros_like(self.total).index_add_(0, self.owners, slope.sum(1, keepdim=True)))
            logits.index_put_((self.owners[:, None], self.targets), slope, accumulate=True)
        if bend is not None:
            logits.mul_(bend)
        logits = logits.to(self.hidden.dtype)
        back = logits @ self.head.weight
        for (layer, rows), inner in zip(self.parts, self.inner, strict=True):
            layer.add_gradients(self.hidden[rows], inner, logits[rows], back[rows])
        return back


def _whole(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
