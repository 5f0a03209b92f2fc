"""The torch sample engine: continuous batching over one base model and many adapters.

`submit` from any thread; one thread calls `step`, which lets waiting requests in, has their prompts computed, and draws
one token for every row in the batch. Knows tokens and tensors: no ops, no HTTP, no settings, and text only through
`decode`.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from itertools import islice
from math import isnan

import torch
from torch import Tensor

from openrl.domain.errors import EngineBusy, FieldInvalid
from openrl.domain.ids import DepotKey
from openrl.domain.sampling import SampleResult
from workers.model.allocation import available_bytes
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.sample.fetching import Fetch
from workers.sample.request import SampleRequest, check
from workers.sample.torch.adapters import Policies
from workers.sample.torch.admission import Room, Wish, admit, passes
from workers.sample.torch.cache import Geometry, SlotCache, affordable_tokens, cache_argument
from workers.sample.torch.decode_pass import DecodePass
from workers.sample.torch.logits import Draw, Drawn
from workers.sample.torch.prompt_pass import PromptPass
from workers.sample.torch.prompts import Prompt, by_prompt
from workers.sample.torch.rows import Job, PrefixKey, Row, take_top
from workers.sample.torch.stopping import Decode
from workers.sample.torch.table import Table

__all__ = ["SampleEngine", "SampleRequest"]

LOOKAHEAD = 256  #: waiting requests looked at in one step
LOAD_WAIT_SECONDS = 0.002  #: how long a step with nothing else to do waits for weights


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
        max_rows: int = 128,
        cache_tokens: int = 0,
        prefill_tokens: int = 4096,
        policies: int = 64,
    ) -> None:
        self.base = base
        self.policies = Policies(base, fetch=fetch, limit=policies)
        self.tokens_drawn = 0  #: since the start
        self._decode_text, self._prefill_tokens = decode, prefill_tokens
        geometry = Geometry.of(base.module.config.get_text_config(), base.dtype, base.device)
        cells = cache_tokens or affordable_tokens(
            geometry, max_rows * base.context_length, available_bytes(base.device)
        )
        self._cache = SlotCache(geometry, max_rows=max_rows, cache_tokens=cells)
        self._table = Table(self._cache)
        with_cache = {"use_cache": True, cache_argument(base.module.get_decoder()): self._cache}
        self._prompt_pass = PromptPass(base, self.policies, self._table, with_cache)
        self._decode_pass = DecodePass(base, self.policies, self._table, with_cache)
        self._inbox: deque[Job] = deque()
        self._waiting: deque[Job] = deque()

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

    @property
    def idle(self) -> bool:
        return not (self._inbox or self._waiting or self._table)

    @property
    def rows(self) -> int:
        """Samples being drawn."""
        return len(self._table)

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
        if self._table:
            self._decode()
        elif self._waiting and not admitted:
            self.policies.wait_for_any(LOAD_WAIT_SECONDS)
        return not self.idle

    def close(self) -> None:
        """Fail what is unfinished with EngineBusy and stop loading."""
        self._take_in()
        for job in [*self._waiting, *(row.job for row in self._table.rows)]:
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
        self._remove([slot for slot, row in enumerate(self._table.rows) if row.job.over])

    def _remove(self, slots: list[int]) -> None:
        """Take rows out of the batch; the last rows move into their places."""
        if not slots:
            return
        for row in self._table.remove(slots):
            if row.job.over:
                self._release(row.job)
        self._decode_pass.forget()

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
        live = self._table.prompts()
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
            rows=len(self._table),
            length=self._table.longest(),
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
        rows = [
            (index, job.row())
            for index, prompt in enumerate(prompts)
            for job, count in prompt.jobs
            for _ in range(count if job.request.cells else job.unplaced)
        ]
        rows.sort(key=lambda pair: not pair[1].job.request.cells)  # those that stay come first, in order
        staying = [index for index, row in rows if row.job.request.cells]
        with self.base.mixed(self.policies.mix([prompt.policy for prompt in prompts])):
            last = self._prompt_pass(prompts, staying)
            self._settle(job for prompt in prompts for job, _ in prompt.jobs)
            if rows:
                self._draw_first(rows, staying, last)

    def _draw_first(self, rows: list[tuple[int, Row]], staying: list[int], last: Tensor) -> None:
        """From the prompts' last hidden states [prompts, width]; `rows` with their prompts' indices."""
        source = torch.tensor([index for index, _ in rows], device=last.device)
        logits = self.base.head(last)[source]
        drawn = Draw([row.choice for _, row in rows], last.device)(logits, [0] * len(rows))
        first = len(self._table)
        self._table.add([row for _, row in rows[: len(staying)]], [last[index] for index in staying])
        self._decode_pass.forget()
        ended = self._take([row for _, row in rows], drawn)
        self._remove([first + index for index in ended if index < len(staying)])

    def _settle(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.settle():
                self._release(job)

    # ----------------------------------------------------------------------------------------------- decoding
    def _decode(self) -> None:
        """One token for every row."""
        try:
            drawn = self._decode_pass()
            self._remove(self._take(self._table.rows, drawn))
        except Exception as error:
            for row in self._table.rows:
                self._fail(row.job, error)
            self._let_go()

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
        self._settle([row.job])
        return True
