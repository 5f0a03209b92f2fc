"""The torch sample engine: continuous batching over one base model and many adapters.

`submit` from any thread; one thread calls `step`, which lets waiting requests in, has a part of their prompts computed,
and draws one token for every row in the batch. Knows tokens and tensors: no ops, no HTTP, no settings, and text only
through `decode`.
"""

from concurrent.futures import Future

import torch
from torch import Tensor

from openrl.domain.errors import EngineBusy, FieldInvalid
from openrl.domain.ids import DepotKey
from openrl.domain.sampling import SampleResult
from openrl.domain.stretch import Owner
from workers.model.allocation import available_bytes
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.sample.fetching import Fetch
from workers.sample.request import SampleRequest, check, check_cache
from workers.sample.stopping import Decode
from workers.sample.torch.adapters import Adapters
from workers.sample.torch.cache import Geometry, RowCache, affordable_tokens, cache_argument
from workers.sample.torch.decode_pass import DecodePass
from workers.sample.torch.decoding import Decoding
from workers.sample.torch.gate import Gate
from workers.sample.torch.prompt_pass import PromptPass
from workers.sample.torch.rows import Job
from workers.sample.torch.starting import Starting
from workers.sample.torch.starts import PART
from workers.sample.torch.table import Table
from workers.sample.torch.waiting import Waiting

LOAD_WAIT_SECONDS = 0.002  #: how long a step with nothing else to do waits for weights
#: Prompt tokens in a step. On a CPU half a second of a small model's time, which is seven decode steps of 32 rows;
#: fewer would have many prompts wait for ever more decode steps of few rows. A GPU computes more in less time.
CPU_PREFILL_TOKENS, PREFILL_TOKENS = 512, 2048
ALONE = 4  #: as many times the prompt tokens where no sample has to wait for them


class SampleEngine:
    """`decode` turns tokens into text, for stop strings; `fetch` reads a policy's files (KeyError: not there yet).

    At most `max_rows` samples and `cache_tokens` tokens (rows times the longest; 0 sizes it from free memory) are in
    the batch; `prefill_tokens` bounds the prompt tokens computed between two decode steps (0 chooses by device), and is
    more while nothing is decoded. `adapters` are kept at most.
    """

    def __init__(
        self,
        base: BaseModel,
        *,
        decode: Decode,
        fetch: Fetch,
        max_rows: int = 128,
        cache_tokens: int = 0,
        prefill_tokens: int = 0,
        adapters: int = 64,
    ) -> None:
        self.base = base
        self.adapters = Adapters(base, fetch=fetch, limit=adapters)
        self._decode_text = decode
        self._prefill_tokens = prefill_tokens or (CPU_PREFILL_TOKENS if base.device.type == "cpu" else PREFILL_TOKENS)
        geometry = Geometry.of(base.module.config.get_text_config(), base.dtype, base.device)
        cells = cache_tokens or affordable_tokens(
            geometry, max_rows * base.context_length, available_bytes(base.device)
        )
        cache = RowCache(geometry, max_rows=max_rows, cache_tokens=cells)
        with_cache = {"use_cache": True, cache_argument(base.module.get_decoder()): cache}
        self._table = Table(cache)
        self._waiting = Waiting(self.adapters)
        self._decoding = Decoding(self._table, DecodePass(base, self.adapters, self._table, with_cache))
        prompt_pass = PromptPass(base, self.adapters, cache, with_cache)
        self._starting = Starting(base, self._table, prompt_pass, self._decoding)
        self.served: frozenset[Owner] = frozenset()  #: whose the last step was
        self._gate = Gate(self._waiting, self._starting, self._table)

    # ---------------------------------------------------------------------------------------- for any thread
    def submit(self, request: SampleRequest) -> "Future[SampleResult]":
        """Queue a request. Its future fails with FieldInvalid where the request cannot be served, WeightsNotArrived or
        AdapterUnsupported where its policy cannot be loaded, EngineBusy where the engine closes first."""
        job = Job(request, self._decode_text, self.base.eos_token_ids)
        try:
            check(request, context_length=self.base.context_length, vocab_size=self.base.vocab_size)
            check_cache(request, self._table.cache.cache_tokens, uncached_tokens=PART)
        except FieldInvalid as error:
            job.fail(error)
        else:
            self._waiting.submit(job)
        return job.future

    def cancel(self, future: "Future[SampleResult]") -> None:
        """Nobody wants this any more: its rows, or what is computed of its prompt, leave before the next step."""
        future.cancel()

    def put(self, key: DepotKey, shape: LoraShape, flat: Tensor) -> None:
        """Hand over a policy's weights in memory, see Adapters.put."""
        self.adapters.put(key, shape, flat)

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._starting or self._table)

    @property
    def rows(self) -> int:
        """Samples being drawn."""
        return len(self._table)

    @property
    def waiting(self) -> int:
        """Requests not wholly admitted yet."""
        return len(self._waiting)

    @property
    def tokens_drawn(self) -> int:
        """Since the start."""
        return self._decoding.tokens_drawn

    @property
    def prompt_tokens(self) -> int:
        """Computed since the start."""
        return self._starting.prompt_tokens

    @property
    def prompt_tokens_reused(self) -> int:
        """Not computed since the start, as their keys and values were in the cache."""
        return self._starting.prompt_tokens_reused

    # ---------------------------------------------------------------------------------- for the owning thread
    @torch.inference_mode()
    def step(self) -> bool:
        """Let requests in, compute prompts, then draw a token for each row. Whether there is anything left to do.

        Never raises for a request's sake: what goes wrong ends in the futures it concerns."""
        self._let_go()
        self._waiting.take_in()
        budget = self._prefill_tokens * (1 if self._table else ALONE)
        self._gate.admit(budget)
        self.served = frozenset(job.owner for job in self._jobs())
        if self._starting:
            self._starting.advance(budget)
        if self._table:
            self._decoding.step()
        elif self._waiting and not self._starting:
            self.adapters.wait_for_any(LOAD_WAIT_SECONDS)
        self._let_go()
        return not self.idle

    def forget_prefixes(self) -> None:
        """The base model's own weights are others now: nothing that was computed with the old ones is used again."""
        self._table.forget(lambda _: True)

    @torch.inference_mode()
    def close(self) -> None:
        """Fail what is unfinished with EngineBusy and stop loading."""
        error = EngineBusy("it is shutting down")
        self._waiting.fail(error)
        for job in self._jobs():
            job.fail(error)
        self._let_go()
        self.adapters.close()

    def _jobs(self) -> set[Job]:
        """Requests with a sample that was let in and has not ended."""
        return {row.job for row in self._table.rows}.union(*(start.jobs for start in self._starting))

    def _let_go(self) -> None:
        """Whom nobody waits for any more leaves, and so do the prefixes of policies that were dropped."""
        if self._waiting.drain():
            self._starting.drop_over()
            self._decoding.drop_over()
        self._table.forget(lambda policy: policy is not None and policy not in self.adapters)
