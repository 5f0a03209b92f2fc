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

from workers.sample.randomness import uniforms

NUCLEUS = 1024  #: tokens looked at first for top-p; the whole vocabulary is sorted only where they hold too little mass


@dataclass(frozen=True, slots=True)
class Choice:
    """How one row chooses."""

    temperature: float = 1.0  #: 0 is greedy
    top_k: int = -1  #: below 1 keeps all
    top_p: float = 1.0
    stream: int = 0  #: see randomness.stream
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
        self._streams: NDArray[np.uint64] = np.array([choice.stream for choice in choices], np.uint64)
        self._cuts = _by_width(choices)
        self._top = max((choice.top_logprobs for choice in choices), default=0)

    def __call__(self, logits: Tensor, steps: Sequence[int]) -> Drawn:
        """Draw from logits [n, V] of any float dtype; `steps` counts the tokens each row has already."""
        scaled = logits.float()
        if self._temperature is not None:
            scaled = scaled / self._temperature
        total = torch.logsumexp(scaled, -1, keepdim=True)
        tokens = self._tokens(scaled, total, steps)
        logprobs = (scaled.gather(-1, tokens[:, None]) - total)[:, 0]
        if not self._top:
            return Drawn(tokens, logprobs)
        values, ids = scaled.topk(min(self._top, scaled.shape[-1]), -1)
        return Drawn(tokens, logprobs, ids, values - total)

    def _tokens(self, scaled: Tensor, total: Tensor, steps: Sequence[int]) -> Tensor:
        if self._all_greedy:
            return scaled.argmax(-1)
        luck = torch.from_numpy(uniforms(self._streams, np.asarray(steps, np.uint64))).to(scaled.device)
        tokens = invert((scaled - total).exp_(), luck[:, None])[:, 0]
        for width, rows, top_k, top_p in self._cuts:
            index = torch.tensor(rows, device=scaled.device)
            cut = _cut(scaled[index], total[index], width, top_k, top_p, luck[index])
            tokens = tokens.index_copy(0, index, cut)
        return tokens if self._greedy is None else torch.where(self._greedy, scaled.argmax(-1), tokens)


def _by_width(choices: Sequence[Choice]) -> list[tuple[int, list[int], list[int], list[float]]]:
    """Rows that cut their distribution, grouped by how many sorted tokens they need, so that no row's result depends
    on its neighbours': (width, rows, top_k, top_p)."""
    groups: dict[int, tuple[int, list[int], list[int], list[float]]] = {}
    for row, choice in enumerate(choices):
        if choice.cuts:
            width = choice.top_k if choice.top_k > 0 else NUCLEUS
            _, rows, top_k, top_p = groups.setdefault(max(choice.top_k, 0), (width, [], [], []))
            rows.append(row)
            top_k.append(choice.top_k)
            top_p.append(choice.top_p)
    return list(groups.values())


def _cut(scaled: Tensor, total: Tensor, width: int, top_k: list[int], top_p: list[float], luck: Tensor) -> Tensor:
    """Draw from rows [m, V] after top-k, then top-p on what top-k left; the likeliest token always stays."""
    vocab = scaled.shape[-1]
    values, ids = scaled.topk(min(width, vocab), -1)
    probs = (values - total).exp_()
    wanted = torch.tensor(top_p, dtype=probs.dtype, device=probs.device)[:, None]
    if width < vocab and top_k[0] < 1:  # a group has either top-k in all its rows or in none
        short = probs.sum(-1) < wanted[:, 0]
        if bool(short.any()):
            return _cut_wide(scaled, total, top_k, top_p, luck, short)
    mass = probs.sum(-1, keepdim=True) if top_k[0] > 0 else 1.0
    before = probs.cumsum(-1) - probs
    keep = before < wanted * mass
    keep[:, 0] = True
    return ids.gather(-1, invert(probs * keep, luck[:, None]))[:, 0]


def _cut_wide(
    scaled: Tensor, total: Tensor, top_k: list[int], top_p: list[float], luck: Tensor, short: Tensor
) -> Tensor:
    """Rows whose nucleus is wider than NUCLEUS sort the whole vocabulary; the others stay narrow."""
    tokens = torch.empty(len(top_p), dtype=torch.int64, device=scaled.device)
    for wide in (False, True):
        rows = [row for row, is_short in enumerate(short.tolist()) if is_short is wide]
        if rows:
            index = torch.tensor(rows, device=scaled.device)
            width = scaled.shape[-1] if wide else NUCLEUS
            some_k, some_p = [top_k[row] for row in rows], [top_p[row] for row in rows]
            tokens[index] = _cut(scaled[index], total[index], width, some_k, some_p, luck[index])
    return tokens


def invert(weights: Tensor, luck: Tensor) -> Tensor:
    """Where uniform numbers [n, k] fall in the cumulated weights [n, V] (not normalised), int64 [n, k]; weight 0 is
    never hit."""
    cumulated = weights.cumsum(-1)
    end = cumulated[:, -1:]
    aim = torch.minimum((luck * end).to(cumulated.dtype), torch.nextafter(end, torch.zeros_like(end)))
    return torch.searchsorted(cumulated, aim, right=True).clamp_(max=weights.shape[-1] - 1)
