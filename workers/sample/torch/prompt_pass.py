"""Prompts before their first token is drawn: computed or copied into the cache, and scored where that was asked for.

Knows no admission and no sampling; what it leaves in the cache is the table's once the caller adds the rows.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from workers.model.base import BaseModel
from workers.sample.torch.adapters import Policies
from workers.sample.torch.prompt_logprobs import score_prompt
from workers.sample.torch.prompts import Prompt
from workers.sample.torch.table import Table


class PromptPass:
    """`with_cache` are the arguments that make the model use the table's cache."""

    def __init__(self, base: BaseModel, policies: Policies, table: Table, with_cache: Mapping[str, object]) -> None:
        self._base, self._policies, self._table, self._with_cache = base, policies, table, with_cache

    def __call__(self, prompts: Sequence[Prompt], staying: Sequence[int]) -> Tensor:
        """The hidden states of the prompts' last tokens, [prompts, width]. Either all prompts have a source or none.

        `staying` has a prompt's index for each row to be kept, in rising order: the prompts' keys and values are then
        in the cache's next rows. The mix must be that of the prompts' policies.
        """
        return (self._compute if prompts[0].source is None else self._copy)(prompts, staying)

    def _copy(self, prompts: Sequence[Prompt], staying: Sequence[int]) -> Tensor:
        first = len(self._table)
        self._table.reserve(len(staying), max(len(prompt.tokens) for prompt in prompts))
        sources = [prompt.source for prompt in prompts if prompt.source is not None]
        for index, (prompt, source) in enumerate(zip(prompts, sources, strict=True)):
            count = staying.count(index)
            self._table.cache.copy(source, first, count, len(prompt.tokens))
            first += count
        return torch.stack([self._table.hidden[source] for source in sources])

    def _compute(self, prompts: Sequence[Prompt], staying: Sequence[int]) -> Tensor:
        """Pads on the right, where causal attention does not look."""
        lengths = [len(prompt.tokens) for prompt in prompts]
        width = max(lengths)
        ids = torch.tensor([[*p.tokens, *[0] * (width - len(p.tokens))] for p in prompts], device=self._base.device)
        hidden = self._base.hidden(ids, **self._storing(staying, lengths))
        self._score(prompts, hidden)
        return hidden[torch.arange(len(prompts)), torch.tensor(lengths) - 1]

    def _storing(self, staying: Sequence[int], lengths: Sequence[int]) -> Mapping[str, object]:
        """The model's cache arguments."""
        if not staying:
            return {"use_cache": False}
        span = max(lengths[index] for index in staying)
        self._table.reserve(len(staying), span)
        self._table.cache.prefill(len(self._table), torch.tensor(staying, device=self._base.device), span)
        return self._with_cache

    def _score(self, prompts: Sequence[Prompt], hidden: Tensor) -> None:
        """Answer what was asked about the prompts themselves, from hidden states [prompts, length, width]."""
        for index, prompt in enumerate(prompts):
            asking = [job for job, _ in prompt.jobs if job.scores is None]
            if not asking:
                continue
            states = hidden[index, : len(prompt.tokens)]
            with self._base.mixed(self._policies.mix([prompt.policy])):  # one batch row of many positions
                for job in asking:
                    job.scores = score_prompt(
                        job.request, states, lambda some: self._base.head(some[None])[0], self._base.vocab_size
                    )
