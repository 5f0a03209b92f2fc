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

from workers.sample.randomness import again, uniforms

ATTEMPTS = 12  #: draws for a token inside of top-p, before the vocabulary is sorted after all


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
        self._cuts = _cuts(choices)
        self._top = max((choice.top_logprobs for choice in choices), default=0)

    def __call__(self, logits: Tensor, steps: Sequence[int]) -> Drawn:
        """Draw from logits [n, V] of any float dtype; `steps` counts the tokens each row has already."""
        scaled = logits.float()
        if self._temperature is not None:
            scaled = scaled / self._temperature
        most = scaled.amax(-1, keepdim=True)
        weights = (scaled - most).exp_()
        if self._all_greedy:
            tokens, mass = scaled.argmax(-1), weights.sum(-1, keepdim=True)
        else:
            tokens, mass = self._tokens(scaled, weights, np.asarray(steps, np.uint64))
        total = most + mass.log()
        logprobs = (scaled.gather(-1, tokens[:, None]) - total)[:, 0]
        if not self._top:
            return Drawn(tokens, logprobs)
        values, ids = scaled.topk(min(self._top, scaled.shape[-1]), -1)
        return Drawn(tokens, logprobs, ids, values - total)

    def _tokens(self, scaled: Tensor, weights: Tensor, steps: NDArray[np.uint64]) -> tuple[Tensor, Tensor]:
        """Tokens [n] drawn from weights [n, V] (not normalised), and the weights' sums [n, 1]."""
        luck = luck_of(self._streams, steps, weights.device)[:, None]
        cumulated = weights.cumsum(-1)
        tokens = invert(cumulated, luck)[:, 0]
        for top_k, rows in self._cuts.items():
            places = torch.tensor([row for row, _ in rows], device=weights.device)
            top_p = torch.tensor([[top_p] for _, top_p in rows], dtype=weights.dtype, device=weights.device)
            if top_k:
                drawn = _draw_cut(weights[places], top_k, top_p, luck[places])
            else:
                who = [row for row, _ in rows]
                drawn = _draw_nucleus(weights[places], tokens[places], top_p, self._streams[who], steps[who])
            tokens.index_copy_(0, places, drawn)
        if self._greedy is not None:
            tokens = torch.where(self._greedy, scaled.argmax(-1), tokens)
        return tokens, cumulated[:, -1:]


def _cuts(choices: Sequence[Choice]) -> dict[int, list[tuple[int, float]]]:
    """Rows that cut their distribution, with their top-p, by top-k (0: none): each group needs as many sorted tokens,
    so that no row's result depends on its neighbours'."""
    groups: dict[int, list[tuple[int, float]]] = {}
    for row, choice in enumerate(choices):
        if choice.cuts:
            groups.setdefault(max(choice.top_k, 0), []).append((row, choice.top_p))
    return groups


def _draw_cut(weights: Tensor, top_k: int, top_p: Tensor, luck: Tensor) -> Tensor:
    """Draw from weights [m, V] after top-k, then top-p [m, 1] on what top-k left; the likeliest token always stays."""
    best, ids = weights.topk(min(top_k, weights.shape[-1]), -1)
    before = best.cumsum(-1) - best
    keep = before < top_p * best.sum(-1, keepdim=True)
    keep[:, 0] = True
    return ids.gather(-1, invert((best * keep).cumsum(-1), luck))[:, 0]


def _draw_nucleus(
    weights: Tensor, drawn: Tensor, top_p: Tensor, streams: NDArray[np.uint64], steps: NDArray[np.uint64]
) -> Tensor:
    """Draw from weights [m, V] after top-p [m, 1]: draw from all until the token is one of those that stay, which is
    cheaper than sorting the vocabulary. A token stays if the likelier ones together have less than top-p."""
    limit = top_p * weights.sum(-1, keepdim=True)
    tokens, left = drawn.clone(), torch.arange(weights.shape[0], device=weights.device)
    for attempt in range(ATTEMPTS):
        some = weights[left]
        mine = some.gather(-1, tokens[left, None])
        likelier = torch.where(some > mine, some, 0.0).sum(-1, keepdim=True)
        left = left[(likelier >= limit[left])[:, 0]]
        if not left.numel():
            return tokens
        who = left.cpu().numpy()
        luck = luck_of(again(streams[who], attempt), steps[who], weights.device)[:, None]
        tokens[left] = invert(weights[left].cumsum(-1), luck)[:, 0]
    tokens[left] = _draw_cut(weights[left], weights.shape[-1], top_p[left], luck)
    return tokens


def luck_of(streams: NDArray[np.uint64], steps: NDArray[np.uint64], device: torch.device) -> Tensor:
    """Uniform numbers, float32 as not every device knows more; rounding may make one of them 1, which `invert` bears."""
    return torch.from_numpy(uniforms(streams, steps).astype(np.float32)).to(device)


def invert(cumulated: Tensor, luck: Tensor) -> Tensor:
    """Where uniform numbers [n, k] fall in cumulated weights [n, V] (not normalised), int64 [n, k]; a weight of 0 is
    never hit."""
    end = cumulated[:, -1:]
    aim = torch.minimum(luck * end, torch.nextafter(end, torch.zeros_like(end)))
    return torch.searchsorted(cumulated, aim, right=True).clamp_(max=cumulated.shape[-1] - 1)
