"""From logits to tokens: one draw for a batch of rows, each with its own temperature, top-k, top-p and luck.

A row's draw never depends on the rows beside it. Log-probabilities are those of the temperature-scaled distribution
before top-k and top-p cut it (at temperature 0: of temperature 1), in float32. Knows no requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.sample.luck import Luck
from workers.sample.randomness import Words

ATTEMPTS = 12  #: draws for a token inside of top-p, before the vocabulary is sorted after all


@dataclass(frozen=True, slots=True)
class Choice:
    """How one row chooses."""

    temperature: float = 1.0  #: 0 is greedy
    top_k: int = -1  #: below 1 keeps all
    top_p: float = 1.0
    stream: int = 0  #: see randomness.stream
    seeded: bool = False  #: to be the same whoever shares the batch, for a little more work: see luck
    top_logprobs: int = 0  #: likeliest tokens to report at each position

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def cuts(self) -> bool:
        return not self.greedy and (self.top_k > 0 or self.top_p < 1)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a batch of n rows drew."""

    tokens: Tensor  #: int64 [n], on the logits' device
    logprobs: Tensor  #: float32 [n]; NaN where the row's logits are not finite
    top_ids: Tensor | None = None  #: int64 [n, k], k the largest asked for by any row
    top_logprobs: Tensor | None = None  #: float32 [n, k]


class Draw:
    """The choices of a fixed set of rows, laid out as tensors once and used for many steps."""

    def __init__(self, choices: Sequence[Choice], device: torch.device) -> None:
        scale = [1.0 if choice.greedy else choice.temperature for choice in choices]
        self._temperature = (
            None if all(t == 1.0 for t in scale) else torch.tensor(scale, dtype=torch.float32, device=device)[:, None]
        )
        greedy = [choice.greedy for choice in choices]
        self._all_greedy = all(greedy)
        self._greedy = torch.tensor(greedy, device=device) if any(greedy) else None
        self._luck = Luck([choice.stream for choice in choices], [choice.seeded for choice in choices])
        self._rows = np.arange(len(choices))
        self._cuts = _cuts(choices, device)
        self._top = max((choice.top_logprobs for choice in choices), default=0)

    def __call__(self, logits: Tensor, steps: Sequence[int]) -> Drawn:
        """Draw from logits [n, V] of any float dtype; `steps` counts the tokens each row has already."""
        scaled = logits.float()
        if self._temperature is not None:
            scaled = scaled / self._temperature
        most = scaled.amax(-1, keepdim=True)
        weights = (scaled - most).exp_()
        tokens = self._tokens(scaled, weights, np.asarray(steps, np.uint64))
        total = most + _sums(weights).log()
        logprobs = (scaled.gather(-1, tokens[:, None]) - total)[:, 0]
        if not self._top:
            return Drawn(tokens, logprobs)
        values, ids = scaled.topk(min(self._top, scaled.shape[-1]), -1)
        return Drawn(tokens, logprobs, ids, values - total)

    def _tokens(self, scaled: Tensor, weights: Tensor, steps: Words) -> Tensor:
        if self._all_greedy:
            return scaled.argmax(-1)
        tokens = self._luck.pick(weights, self._rows, steps)
        for cut in self._cuts:
            mine, at = weights[cut.places], steps[cut.rows]
            if cut.top_k:
                drawn = _draw_cut(mine, cut, at, self._luck)
            else:
                drawn = _draw_nucleus(mine, tokens[cut.places], cut, at, self._luck)
            tokens.index_copy_(0, cut.places, drawn)
        return tokens if self._greedy is None else torch.where(self._greedy, scaled.argmax(-1), tokens)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Rows that cut their distribution after equally many sorted tokens, so that none depends on its neighbours."""

    top_k: int  #: 0: none
    top_p: Tensor  #: float32 [m, 1]
    rows: NDArray[np.int64]  #: [m]
    places: Tensor  #: the same, on the device


def _cuts(choices: Sequence[Choice], device: torch.device) -> list[_Cut]:
    groups: dict[int, list[int]] = {}
    for row, choice in enumerate(choices):
        if choice.cuts:
            groups.setdefault(max(choice.top_k, 0), []).append(row)
    return [
        _Cut(
            top_k,
            torch.tensor([[choices[row].top_p] for row in rows], dtype=torch.float32, device=device),
            np.array(rows),
            torch.tensor(rows, device=device),
        )
        for top_k, rows in groups.items()
    ]


def _draw_cut(weights: Tensor, cut: _Cut, steps: Words, luck: Luck) -> Tensor:
    """Draw from weights [m, V] after top-k, then top-p on what top-k left; the likeliest token always stays."""
    best, ids = weights.topk(min(cut.top_k, weights.shape[-1]), -1)
    before = best.cumsum(-1) - best
    keep = before < cut.top_p * best.sum(-1, keepdim=True)
    keep[:, 0] = True
    return ids.gather(-1, luck.pick(best * keep, cut.rows, steps, ids=ids)[:, None])[:, 0]


def _draw_nucleus(weights: Tensor, drawn: Tensor, cut: _Cut, steps: Words, luck: Luck) -> Tensor:
    """Draw from weights [m, V] after top-p: draw from all until the token is one of those that stay, which is cheaper
    than sorting the vocabulary. A token stays if the likelier ones together have less than top-p."""
    limit = cut.top_p * _sums(weights)
    tokens, left = drawn.clone(), torch.arange(weights.shape[0], device=weights.device)
    for attempt in range(1, ATTEMPTS + 1):
        some = weights[left]
        mine = some.gather(-1, tokens[left, None])
        likelier = _sums(torch.where(some > mine, some, 0.0))
        left = left[(likelier >= limit[left])[:, 0]]
        if not left.numel():
            return tokens
        who = left.cpu().numpy()
        tokens[left] = luck.pick(weights[left], cut.rows[who], steps[who], attempt)
    rest = _Cut(weights.shape[-1], cut.top_p[left], cut.rows[who], left)
    tokens[left] = _draw_cut(weights[left], rest, steps[who], luck)
    return tokens


def _sums(weights: Tensor) -> Tensor:
    """Of each row of [n, V]. A row alone is summed as one of two: its threads would share it, in another order."""
    return weights.expand(2, -1).sum(-1, keepdim=True)[:1] if len(weights) == 1 else weights.sum(-1, keepdim=True)
