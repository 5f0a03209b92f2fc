"""The torch sample engine: continuous batching over one base model and many adapters.

`submit` from any thread; one thread calls `step`, which lets waiting requests in, computes their prompts, and draws one
token for every row in the batch. Knows tokens and tensors: no ops, no HTTP, no settings, no text but through `decode`.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from math import isnan

import torch
from torch import Tensor

from openrl.domain.errors import EngineBusy, FieldInvalid
from openrl.domain.ids import DepotKey
from openrl.domain.sampling import SampleResult
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.lora import Mix
from workers.sample.adapters import Fetch, Policies
from workers.sample.admission import Room, Wish, admit, passes
from workers.sample.cache import Geometry, SlotCache, affordable_tokens, cache_argument, free_bytes
from workers.sample.logits import Draw, Drawn
from workers.sample.masks import MaskPlan
from workers.sample.prompt_logprobs import score_prompt
from workers.sample.prompts import Prompt, by_prompt
from workers.sample.request import SampleRequest, check
from workers.sample.rows import Job, PrefixKey, Row, take_top
from workers.sample.stopping import Decode

__all__ = ["SampleEngine", "SampleRequest"]

LOOKAHEAD = 256  #: waiting requests looked at in one step
LOAD_WAIT_SECONDS = 0.002  #: how long a step with nothing else to do waits for weights


@dataclass(slots=True)
class _Batch:
    """What a decode step needs, kept while the rows stay the same."""

    ids: Tensor  #: int64 [n, 1], to be fed
    positions: Tensor  #: int64 [n], of `ids`
    longest: int  #: the largest position
    draw: Draw
    mix: Mix


class SampleEngine:
    """`decode` turns tokens into text, for stop strings; `fetch` reads a policy's files (KeyError: not there yet).

    At most `max_rows` samples and `cache_tokens` tokens (rows times the longest; 0 sizes it from free memory) are in
    the batch; `prefill_tokens` bounds the prompt tokens computed between two decode steps. `policies` are kept at most.
    """

    def __init__(
        self,
        base: BaseModel,
        *,
        decode: Decode,
        fetch: Fetch,
        max_rows: int = 32,
        cache_tokens: int = 0,
        prefill_tokens: int = 4096,
        policies: int = 64,
    ) -> None:
        config = base.module.config.get_text_config()
        self.base = base
        self.policies = Policies(base, fetch=fetch, limit=policies)
        self.tokens_drawn = 0  #: since the start
        self._decode_text, self._prefill_tokens = decode, prefill_tokens
        geometry = Geometry.of(config, base.dtype, base.device)
        cells = cache_tokens or affordable_tokens(geometry, max_rows * base.context_length, free_bytes(base.device))
        self._cache = SlotCache(geometry, max_rows=max_rows, cache_tokens=cells)
        self._masks = MaskPlan(config, base.dtype)
        self._cache_argument = cache_argument(base.module.get_decoder())
        self._inbox: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._rows: list[Row] = []
        self._hidden: list[Tensor] = []  # of each row's last prompt token, for siblings that start later
        self._batch: _Batch | None = None

    # ---------------------------------------------------------------------------------------- for any thread
    def submit(self, request: SampleRequest) -> "Future[SampleResult]":
        """Queue a request. Its future fails with FieldInvalid where the request cannot be served, WeightsNotArrived or
        AdapterUnsupported where its policy cannot be loaded, EngineBusy where the engine closes first."""
        job = Job(request, self._decode_text, self.base.eos_token_ids)
        try:
            check(
                request,
                context_length=self.base.context_length,
                vocab_size=self.base.vocab_size,
                cache_tokens=self._cache.cache_tokens,
            )
        except FieldInvalid as error:
            job.fail(error)
        else:
            self._inbox.append(job)
        return job.future

    def cancel(self, future: "Future[SampleResult]") -> None:
        """Nobody wants this any more: its rows leave before the next step."""
        future.cancel()

    def put(self, key: DepotKey, shape: LoraShape, flat: Tensor) -> None:
        """Hand over a policy's weights in memory, see Policies.put."""
        self.policies.put(key, shape, flat)

    def put_files(self, key: DepotKey, files: Mapping[str, bytes]) -> None:
        """Hand over a policy as adapter files, see Policies.put_files."""
        self.policies.put_files(key, files)

    @property
    def idle(self) -> bool:
        return not (self._inbox or self._waiting or self._rows)

    @property
    def rows(self) -> int:
        """Samples being drawn."""
        return len(self._rows)

    @property
    def waiting(self) -> int:
        """Requests not wholly admitted yet."""
        return len(self._waiting) + len(self._inbox)

    # ---------------------------------------------------------------------------------- for the owning thread
    @torch.inference_mode()
    def step(self) -> bool:
        """Let requests in, then draw a token for each row. Whether there is anything left to do.

        Never raises for a request's sake: what goes wrong ends in the futures it concerns."""
        self._take_in()
        self._let_go()
        admitted = self._admit()
        if self._rows:
            self._decode()
        elif self._waiting and not admitted:
            self.policies.wait_for_any(LOAD_WAIT_SECONDS)
        return not self.idle

    def close(self) -> None:
        """Fail what is unfinished with EngineBusy and stop loading."""
        self._take_in()
        for job in [*self._waiting, *(row.job for row in self._rows)]:
            self._fail(job, EngineBusy("it is shutting down"))
        self._let_go()
        self.policies.close()

    # ------------------------------------------------------------------------------------------- who is there
    def _take_in(self) -> None:
        while self._inbox:
            job = self._inbox.popleft()
            if not job.settle():
                self._waiting.append(job)
                self._ready(job)  # weights can be on their way while it waits

    def _let_go(self) -> None:
        """Drop what was cancelled or has failed."""
        if any(job.over for job in self._waiting):
            for job in self._waiting:
                if job.over:
                    self._release(job)
            self._waiting = deque(job for job in self._waiting if not job.over)
        self._remove([slot for slot, row in enumerate(self._rows) if row.job.over])

    def _remove(self, slots: list[int]) -> None:
        """Take rows out of the batch; the last rows move into their places."""
        for slot in sorted(slots, reverse=True):
            job, last = self._rows[slot].job, len(self._rows) - 1
            if slot != last:
                self._cache.copy(last, slot, 1, self._rows[last].position)
                self._rows[slot], self._hidden[slot] = self._rows[last], self._hidden[last]
            self._rows.pop(), self._hidden.pop()
            if job.over:
                self._release(job)
            self._batch = None

    def _release(self, job: Job) -> None:
        if job.holds_policy and job.request.policy is not None:
            job.holds_policy = False
            self.policies.release(job.request.policy)

    def _fail(self, job: Job, error: BaseException) -> None:
        job.fail(error)
        self._release(job)

    # ---------------------------------------------------------------------------------------------- admission
    def _admit(self) -> bool:
        """Start what fits, first come first served. Whether anything was."""
        if not self._waiting:
            return False
        live = {row.job.prefix: slot for slot, row in enumerate(self._rows)}
        jobs = list(islice(self._waiting, LOOKAHEAD))
        granted = admit(self._wishes(jobs, live), self._room())
        started = [(job, count) for job, count in zip(jobs, granted, strict=False) if count >= 0 and not job.over]
        if not started:
            return False
        self._compute(by_prompt(started, live))
        self._waiting = deque(job for job in self._waiting if not (job.started or job.over))
        return True

    def _wishes(self, jobs: Iterable[Job], live: Mapping[PrefixKey, int]) -> Iterable[Wish]:
        seen = set(live)
        for job in jobs:
            request = job.request
            known = job.prefix in seen and job.scores is not None
            seen.add(job.prefix)
            yield Wish(
                rows=job.unplaced if request.cells else 0,
                length=request.cells,
                prompt=0 if known else len(request.prompt),
                ready=self._ready(job),
            )

    def _ready(self, job: Job) -> bool:
        """Whether the job's weights are here; asks for them, and fails the job where they cannot be had."""
        key = job.request.policy
        if key is None:
            return True
        try:
            job.holds_policy = job.holds_policy or self.policies.hold(key)
            return job.holds_policy and self.policies.ready(key)
        except Exception as error:
            self._fail(job, error)
            return False

    def _room(self) -> Room:
        return Room(
            rows=len(self._rows),
            length=max((row.job.request.cells for row in self._rows), default=0),
            max_rows=self._cache.max_rows,
            cache_tokens=self._cache.cache_tokens,
            prefill_tokens=self._prefill_tokens,
        )

    # ------------------------------------------------------------------------------------------------ prompts
    def _compute(self, prompts: list[Prompt]) -> None:
        copied = [prompt for prompt in prompts if prompt.source is not None]
        if copied:
            self._guarded(copied)
        fresh = [prompt for prompt in prompts if prompt.source is None]
        for group in passes([len(prompt.tokens) for prompt in fresh], self._prefill_tokens):
            self._guarded([fresh[index] for index in group])

    def _guarded(self, prompts: list[Prompt]) -> None:
        """Start prompts together; where that fails, each request alone, so that only the one at fault fails."""
        before = [(job, job.placed) for prompt in prompts for job, _ in prompt.jobs]
        try:
            self._start(prompts)
        except Exception as error:
            if len(before) == 1:
                self._fail(before[0][0], error)
                return
            for job, placed in before:
                job.placed = placed
            for prompt in prompts:
                for entry in prompt.jobs:
                    self._guarded([Prompt([entry])])

    def _start(self, prompts: list[Prompt]) -> None:
        """Compute or copy prompts and draw the first token of their samples."""
        mix = self.policies.mix([prompt.policy for prompt in prompts])
        rows = [
            (index, job.row())
            for index, prompt in enumerate(prompts)
            for job, count in prompt.jobs
            for _ in range(count if job.request.cells else job.unplaced)
        ]
        rows.sort(key=lambda pair: not pair[1].job.request.cells)  # those that stay come first, in order
        staying = [index for index, row in rows if row.job.request.cells]
        with self.base.mixed(mix):
            copied = prompts[0].source is not None
            last = self._copied(prompts, staying) if copied else self._prefilled(prompts, staying)
            if rows:
                source = torch.tensor([index for index, _ in rows], device=last.device)
                logits = self.base.head(last)[source]
                drawn = Draw([row.choice for _, row in rows], last.device)(logits, [0] * len(rows))
                self._rows += [row for _, row in rows[: len(staying)]]
                self._hidden += [last[index] for index in staying]
                self._batch = None
                ended = self._take([row for _, row in rows], drawn)
                base = len(self._rows) - len(staying)
                self._remove([base + index for index in ended if index < len(staying)])

    def _copied(self, prompts: list[Prompt], staying: list[int]) -> Tensor:
        """Copy prompts from rows that hold them; the hidden states of their last tokens, [prompts, width]."""
        used = len(self._rows)
        longest = max(len(prompt.tokens) for prompt in prompts)
        self._reserve(len(staying), longest)
        for index, prompt in enumerate(prompts):
            assert prompt.source is not None, "copied prompts have a source"
            count = staying.count(index)
            self._cache.copy(prompt.source, used, count, len(prompt.tokens))
            used += count
        return torch.stack([self._hidden[prompt.source] for prompt in prompts if prompt.source is not None])

    def _prefilled(self, prompts: list[Prompt], staying: list[int]) -> Tensor:
        """Compute prompts; the hidden states of their last tokens, [prompts, width]. Pads on the right, where
        causal attention does not look."""
        lengths = [len(prompt.tokens) for prompt in prompts]
        width = max(lengths)
        ids = torch.tensor([[*p.tokens, *[0] * (width - len(p.tokens))] for p in prompts], device=self.base.device)
        hidden = self.base.hidden(ids, **self._storing(staying, lengths))
        self._score(prompts, hidden)
        return hidden[torch.arange(len(prompts)), torch.tensor(lengths) - 1]

    def _storing(self, staying: list[int], lengths: Sequence[int]) -> dict[str, object]:
        """The model's cache arguments for a prefill whose prompts `staying` are kept."""
        if not staying:
            return {"use_cache": False}
        span = max(lengths[index] for index in staying)
        self._reserve(len(staying), span)
        self._cache.prefill(len(self._rows), torch.tensor(staying, device=self.base.device), span)
        return {"use_cache": True, self._cache_argument: self._cache}

    def _reserve(self, more: int, length: int) -> None:
        used = len(self._rows)
        longest = max((row.position for row in self._rows), default=0)
        self._cache.reserve(used, used + more, max(longest, length))

    def _score(self, prompts: list[Prompt], hidden: Tensor) -> None:
        """Answer what was asked about the prompts themselves, from hidden states [prompts, length, width]."""
        for index, prompt in enumerate(prompts):
            asking = [job for job, _ in prompt.jobs if job.scores is None]
            if not asking:
                continue
            states = hidden[index, : len(prompt.tokens)]
            with self.base.mixed(self.policies.mix([prompt.policy])):  # one batch row of many positions
                for job in asking:
                    job.scores = score_prompt(
                        job.request, states, lambda some: self.base.head(some[None])[0], self.base.vocab_size
                    )
                    if job.settle():
                        self._release(job)

    # ----------------------------------------------------------------------------------------------- decoding
    def _decode(self) -> None:
        """One token for every row."""
        try:
            self._advance(self._batch or self._assemble())
        except Exception as error:
            for row in self._rows:
                self._fail(row.job, error)
            self._let_go()

    def _assemble(self) -> _Batch:
        device, positions = self.base.device, [row.position for row in self._rows]
        self._batch = _Batch(
            ids=torch.tensor([[row.tokens[-1]] for row in self._rows], device=device),
            positions=torch.tensor(positions, device=device),
            longest=max(positions),
            draw=Draw([row.choice for row in self._rows], device),
            mix=self.policies.decode_mix([row.policy for row in self._rows]),
        )
        return self._batch

    def _advance(self, batch: _Batch) -> None:
        length = batch.longest + 1
        self._cache.reserve(len(self._rows), len(self._rows), length)
        self._cache.decode(batch.positions, length)
        with self.base.mixed(batch.mix):
            hidden = self.base.hidden(
                batch.ids,
                position_ids=batch.positions[:, None],
                attention_mask=self._masks(batch.positions, length),
                use_cache=True,
                **{self._cache_argument: self._cache},
            )
            logits = self.base.head(hidden[:, 0])
        drawn = batch.draw(logits, [len(row.tokens) for row in self._rows])
        ended = self._take(self._rows, drawn)
        batch.ids, batch.positions, batch.longest = drawn.tokens[:, None], batch.positions + 1, length
        self._remove(ended)

    def _take(self, rows: list[Row], drawn: Drawn) -> list[int]:
        """Give each row its token; which rows have ended."""
        tokens, logprobs = drawn.tokens.tolist(), drawn.logprobs.tolist()
        if drawn.top_ids is not None and drawn.top_logprobs is not None:
            take_top(rows, drawn.top_ids.cpu(), drawn.top_logprobs.cpu())
        self.tokens_drawn += len(rows)
        return [
            index
            for index, (row, token, logprob) in enumerate(zip(rows, tokens, logprobs, strict=True))
            if self._ended(row, token, logprob)
        ]

    def _ended(self, row: Row, token: int, logprob: float) -> bool:
        if isnan(logprob):
            self._fail(row.job, FieldInvalid("model_path", "these weights give logits that are not finite"))
            return True
        try:
            reason = row.take(token, logprob)
        except Exception as error:  # the injected text decoder's
            self._fail(row.job, error)
            return True
        if reason is None:
            return False
        row.end(reason)
        if row.job.settle():
            self._release(row.job)
        return True
