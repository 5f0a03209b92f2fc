"""Samples from whole models beside those from the base model: each policy version with all weights has a model of its
own, with the same engine on it.

A few copies of the base model are kept, as many as asked for and as memory allows; a version's weights are written over
those of the copy that was unused for longest. The base model's own weights are never touched, and its rows and those of
adapters go on beside the copies. Knows no files, and threads as the sample engine does.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace

from torch import Tensor

from openrl.domain.errors import CopyWontFit, EngineBusy, WeightsNotArrived
from openrl.domain.ids import DepotKey
from openrl.domain.policy import holds_model
from openrl.domain.sampling import SampleResult
from openrl.domain.stretch import Owner
from workers.model.base import BaseModel
from workers.model.layout import LoraShape
from workers.model.model_files import from_files, parameters, put
from workers.sample.fetching import Fetch
from workers.sample.request import SampleRequest
from workers.sample.torch.engine import LOAD_WAIT_SECONDS, SampleEngine


@dataclass(slots=True)
class _Ask:
    """A request for a whole model's samples, and who waits for them."""

    request: SampleRequest
    key: DepotKey
    future: "Future[SampleResult]" = field(default_factory=Future)

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for it: it was not cancelled."""
        return not self.future.done()


@dataclass(slots=True)
class _Copy:
    """A model of its own and the version whose weights it has."""

    engine: SampleEngine
    key: DepotKey | None = None
    used: int = 0  #: when it last got a request, in requests


class Copies:
    """A sample engine on a base model and others on copies of it. `engine_on` makes one; `fetch` reads a version's
    files (KeyError: not there yet); at most `limit` copies are made, each only if `free_bytes` has room for it."""

    def __init__(
        self,
        base: BaseModel,
        engine_on: Callable[[BaseModel], SampleEngine],
        *,
        fetch: Fetch,
        limit: int,
        free_bytes: Callable[[], int],
    ) -> None:
        self.engine = engine_on(base)
        self._base, self._engine_on, self._fetch, self._limit = base, engine_on, fetch, limit
        self._free_bytes = free_bytes
        self._bytes = sum(each.numel() * each.element_size() for each in parameters(base).values())
        self._copies: list[_Copy] = []
        self._inbox: deque[_Ask] = deque()
        self._waiting: deque[_Ask] = deque()
        self._loading: tuple[DepotKey, Future[dict[str, Tensor]]] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fetch-model")
        self._requests = 0
        self.served: frozenset[Owner] = frozenset()  #: whose the last step was

    # ---------------------------------------------------------------------------------------- for any thread
    def submit(self, request: SampleRequest) -> "Future[SampleResult]":
        """See SampleEngine.submit; a future can also fail with WeightsUnsupported or CopyWontFit."""
        if request.policy is None or not holds_model(request.policy):
            return self.engine.submit(request)
        ask = _Ask(replace(request, policy=None), request.policy)
        self._inbox.append(ask)
        return ask.future

    def cancel(self, future: "Future[SampleResult]") -> None:
        future.cancel()

    def put(self, key: DepotKey, shape: LoraShape, flat: Tensor) -> None:
        """Hand over an adapter that was just saved, see Adapters.put. A whole model is read from the depot when it is
        asked for: kept here it would take memory for nothing."""
        self.engine.put(key, shape, flat)

    @property
    def idle(self) -> bool:
        return not (self._inbox or self._waiting) and all(engine.idle for engine in self._engines)

    @property
    def rows(self) -> int:
        """Samples being drawn."""
        return sum(engine.rows for engine in self._engines)

    @property
    def tokens_drawn(self) -> int:
        return sum(engine.tokens_drawn for engine in self._engines)

    # ---------------------------------------------------------------------------------- for the owning thread
    def step(self) -> bool:
        """One step of every engine that has something to do. Whether there is anything left."""
        self._let_in()
        busy = [engine for engine in self._engines if not engine.idle]
        for engine in busy:
            engine.step()
        self.served = frozenset[Owner]().union(*(engine.served for engine in busy))
        if not busy and self._loading is not None:
            wait([self._loading[1]], timeout=LOAD_WAIT_SECONDS)
        return not self.idle

    def close(self) -> None:
        """Fail what is unfinished with EngineBusy and stop loading."""
        for ask in [*self._waiting, *self._inbox]:
            _fail(ask, EngineBusy("it is shutting down"))
        self._waiting.clear()
        self._inbox.clear()
        for engine in self._engines:
            engine.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ------------------------------------------------------------------------------------------------ inside
    @property
    def _engines(self) -> list[SampleEngine]:
        return [self.engine, *(copy.engine for copy in self._copies)]

    def _let_in(self) -> None:
        """Give requests to their copies, first come first served. Where one has to wait for a copy to become idle,
        later ones do not keep that copy busy."""
        while self._inbox:
            self._waiting.append(self._inbox.popleft())
        self._forget_unwanted()
        left: deque[_Ask] = deque()
        away: set[DepotKey] = set()
        closed: _Copy | None = None
        for ask in self._waiting:
            if not ask.wanted:
                continue
            if ask.key in away:
                left.append(ask)
                continue
            try:
                copy = self._copy_of(ask.key)
            except Exception as error:
                _fail(ask, error)
                continue
            if copy is None:
                away.add(ask.key)
                closed = closed or self._in_the_way(ask.key)
                left.append(ask)
            elif copy is closed:
                left.append(ask)
            else:
                self._give(copy, ask)
        self._waiting = left

    def _forget_unwanted(self) -> None:
        """Weights on their way to nobody, as who asked for them was cancelled, must not keep others waiting."""
        if self._loading is not None and self._loading[0] not in {ask.key for ask in self._waiting if ask.wanted}:
            self._loading = None

    def _copy_of(self, key: DepotKey) -> _Copy | None:
        """The version's copy; None while its weights are on their way or no copy is free for them. Raises what loading
        or copying raised."""
        for copy in self._copies:
            if copy.key == key:
                return copy
        if self._loading is None:
            self._loading = (key, self._pool.submit(self._load, key))
        loading, arriving = self._loading
        if loading != key or not arriving.done():
            return None
        try:
            weights = arriving.result()
            free = self._free_copy()
        except Exception:
            self._loading = None
            raise
        if free is None:
            return None
        free.key = None  # a copy that was written over in part is no version's
        put(free.engine.base, weights)
        free.engine.forget_prefixes()
        free.key, self._loading = key, None
        return free

    def _free_copy(self) -> _Copy | None:
        """A copy to write over: a new one where there may be one more, else the one that was idle for longest; None
        where all are busy. Raises CopyWontFit where there is none and no room for one."""
        room = self._free_bytes() >= self._bytes
        if len(self._copies) < self._limit and room:
            self._copies.append(_Copy(self._engine_on(self._base.copied())))
            return self._copies[-1]
        if not self._copies:
            raise CopyWontFit(self._bytes, self._free_bytes())
        return min((copy for copy in self._copies if copy.engine.idle), key=lambda copy: copy.used, default=None)

    def _in_the_way(self, key: DepotKey) -> _Copy | None:
        """The copy that is to become idle for a version: none while its weights are on their way."""
        arrived = self._loading is not None and self._loading[0] == key and self._loading[1].done()
        return min(self._copies, key=lambda copy: copy.used) if arrived else None

    def _give(self, copy: _Copy, ask: _Ask) -> None:
        self._requests += 1
        copy.used = self._requests
        inner = copy.engine.submit(ask.request)
        inner.add_done_callback(lambda done: _hand_on(done, ask))
        ask.future.add_done_callback(lambda outer: inner.cancel() if outer.cancelled() else None)

    def _load(self, key: DepotKey) -> dict[str, Tensor]:
        try:
            files = self._fetch(key)
        except KeyError as error:
            raise WeightsNotArrived(key) from error
        return from_files(self._base, files)


def _hand_on(done: "Future[SampleResult]", ask: _Ask) -> None:
    if done.cancelled():
        ask.future.cancel()
    elif (error := done.exception()) is not None:
        _fail(ask, error)
    else:
        with suppress(InvalidStateError):  # cancelled in this moment
            ask.future.set_result(done.result())


def _fail(ask: _Ask, error: BaseException) -> None:
    with suppress(InvalidStateError):  # cancelled
        ask.future.set_exception(error)
