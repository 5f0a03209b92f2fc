"""Log-probabilities of a prompt's own tokens, of the likeliest, of chosen ones and of drawn alternatives.

All at temperature 1 (alternatives are drawn at the request's temperature and scored at 1). Works through the prompt
in chunks of positions, so that a [prompt, vocabulary] matrix never exists. Row i of the model's output is about token
i + 1.
"""

from bisect import bisect_left
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from openrl.domain.tensor import DType
from workers.model.arrays import from_domain, to_domain
from workers.sample.luck import even, invert
from workers.sample.randomness import keys, stream
from workers.sample.request import SampleRequest
from workers.sample.results import FILLER_ID, FILLER_LOGPROB, PromptScores, top_logprobs

CHUNK_LOGITS = 1 << 23  #: float32 logits held at once: 32 MiB
ALTERNATIVES = 1 << 40  #: the stream of alternatives, far from any sample's number

Head = Callable[[Tensor], Tensor]


class Scoring:
    """One request's scores, while its prompt is computed part by part."""

    def __init__(self, request: SampleRequest) -> None:
        self._sheet = _Sheet(request)
        self._rows = self._sheet.rows()

    @property
    def first(self) -> int:
        """The first position whose hidden state is needed; the prompt's last one at the latest."""
        return self._rows[0] if self._rows else self._sheet.length - 1

    def take(self, start: int, hidden: Tensor, head: Head, vocab_size: int) -> PromptScores | None:
        """Score the positions from `start` on by their hidden states [n, width]; `head` maps [n, width] to logits
        [n, vocab]. The scores once the last position was seen."""
        end = start + len(hidden)
        rows = self._rows[bisect_left(self._rows, start) : bisect_left(self._rows, end)]
        size = max(1, CHUNK_LOGITS // vocab_size)
        for at in range(0, len(rows), size):
            chunk = rows[at : at + size]
            logits = head(hidden[torch.tensor(chunk, device=hidden.device) - start])
            self._sheet.fill(chunk, torch.log_softmax(logits.float(), -1))
        return self._sheet.scores() if end == self._sheet.length else None


class _Sheet:
    """The answers for one prompt, filled in chunk by chunk; on the CPU."""

    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.prompt = torch.tensor(request.prompt)
        self.length = len(request.prompt)
        rows = self.length - 1
        self.logprobs = torch.full((self.length,), float("nan"))
        self.top_ids = torch.full((self.length, request.topk_prompt_logprobs), FILLER_ID)
        self.top_values = torch.full((self.length, request.topk_prompt_logprobs), FILLER_LOGPROB)
        asked = request.target_prompt_logprobs
        self.targets = None if asked is None else from_domain(asked)
        self.target_values = torch.zeros(() if self.targets is None else self.targets.shape)
        self.drawn = torch.zeros((rows, request.prompt_alternatives), dtype=torch.int64)
        self.drawn_values = torch.zeros((rows, request.prompt_alternatives))
        self.stream = stream(request.params.seed, ALTERNATIVES) if request.prompt_alternatives else 0

    def first_scored(self) -> int:
        """First row that the prompt's own and top-k log-probabilities need."""
        last = self.request.prompt_logprobs_last_n
        return 0 if last is None else max(0, self.length - last - 1)

    def rows(self) -> list[int]:
        """Rows of the model's output that something was asked about."""
        count = self.length - 1
        if self.request.prompt_alternatives:
            return list(range(count))
        own = self.request.prompt_logprobs or self.request.topk_prompt_logprobs > 0
        wanted = set(range(self.first_scored(), count)) if own else set()
        if self.targets is not None:
            wanted |= set((self.targets >= 0).any(-1).nonzero()[:, 0].tolist())
        return sorted(wanted)

    def fill(self, rows: list[int], logprobs: Tensor) -> None:
        """Take what was asked from float32 log-probabilities [n, vocab] of `rows`."""
        index = torch.tensor(rows)
        if self.request.prompt_logprobs or self.request.topk_prompt_logprobs:
            self._fill_own(index, logprobs)
        if self.targets is not None:
            asked = self.targets[index]
            values = logprobs.gather(-1, asked.clamp(min=0).to(logprobs.device)).cpu()
            self.target_values[index] = torch.where(asked >= 0, values, 0.0)
        if self.request.prompt_alternatives:
            drawn = self._draw(rows, logprobs)
            self.drawn[index] = drawn.cpu()
            self.drawn_values[index] = logprobs.gather(-1, drawn).cpu()

    def _fill_own(self, index: Tensor, logprobs: Tensor) -> None:
        keep = index >= self.first_scored()
        index, logprobs = index[keep], logprobs[keep.to(logprobs.device)]
        if self.request.prompt_logprobs:
            mine = self.prompt[index + 1].to(logprobs.device)
            self.logprobs[index + 1] = logprobs.gather(-1, mine[:, None])[:, 0].cpu()
        if self.request.topk_prompt_logprobs:
            values, ids = logprobs.topk(self.request.topk_prompt_logprobs, -1)
            self.top_ids[index + 1], self.top_values[index + 1] = ids.cpu(), values.cpu()

    def _draw(self, rows: list[int], logprobs: Tensor) -> Tensor:
        """int64 [n, k], with replacement, at the request's temperature."""
        count, temperature = self.request.prompt_alternatives, self.request.params.temperature
        if temperature == 0:
            return logprobs.argmax(-1, keepdim=True).expand(-1, count)
        steps = (np.arange(count, dtype=np.uint64) + np.array(rows, np.uint64)[:, None] * np.uint64(count)).astype(
            np.uint64
        )
        luck = even(keys(np.full_like(steps, self.stream), steps), logprobs.device)
        return invert(torch.softmax(logprobs / temperature, -1).cumsum(-1), luck)

    def scores(self) -> PromptScores:
        request = self.request
        return PromptScores(
            to_domain(self.logprobs, DType.FLOAT32) if request.prompt_logprobs else None,
            top_logprobs(self.top_ids, self.top_values) if request.topk_prompt_logprobs else None,
            None if self.targets is None else to_domain(self.target_values, DType.FLOAT32),
            (to_domain(self.drawn, DType.INT64), to_domain(self.drawn_values, DType.FLOAT32))
            if request.prompt_alternatives
            else None,
        )
