"""The adapters that can be sampled now, in device memory, by the depot key of their policy version.

Loads in the background through an injected `fetch`, drops the least recently used one that nobody holds, and lays the
adapters that a batch uses side by side for the model. Knows no requests and no files.
"""

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from openrl.domain.errors import AdapterUnsupported, WeightsNotArrived
from openrl.domain.ids import DepotKey
from workers.model.adapter_files import from_files
from workers.model.base import BaseModel
from workers.model.finite import all_finite
from workers.model.layout import LoraShape
from workers.model.lora import Mix
from workers.sample.fetching import Fetch
from workers.sample.torch.apart import ApartPart
from workers.sample.torch.joined import Joined, JoinedPart

LOADERS = 4  #: policies fetched at a time: one that the depot keeps waiting does not keep the others waiting


@dataclass(slots=True)
class _Policy:
    """One adapter, arrived or on its way."""

    loading: "Future[tuple[LoraShape, Tensor]]"
    holders: int = 0  #: requests that need it


class Adapters:
    """At most `limit` adapters in device memory."""

    def __init__(self, base: BaseModel, *, fetch: Fetch, limit: int = 64) -> None:
        self._alike = base.alike
        self._layout, self._device, self._fetch, self._limit = base.layout, base.device, fetch, limit
        # A CPU multiplies few rows by thin matrices faster in float32 than in bfloat16: see joined.SMALL.
        self._dtype = torch.float32 if base.device.type == "cpu" else base.dtype
        self._policies: OrderedDict[DepotKey, _Policy] = OrderedDict()  # least recently used first
        self._joined: tuple[tuple[DepotKey, ...], Joined] = ((), Joined(()))
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(LOADERS, thread_name_prefix="fetch-policy")

    def put(self, key: DepotKey, shape: LoraShape, flat: Tensor) -> None:
        """Hand over a policy's weights, [shape.size] of any float dtype, so that they need not be fetched. Any thread.
        A key that is there already stays as it is; where all places are held the weights are fetched when asked for.
        Raises AdapterUnsupported where they are not finite."""
        arrived: Future[tuple[LoraShape, Tensor]] = Future()
        arrived.set_result((shape, self._placed(flat)))
        with self._lock:
            if key not in self._policies and self._room():
                self._policies[key] = _Policy(arrived)

    def hold(self, key: DepotKey) -> bool:
        """Keep a policy until released, loading it if need be. False, and nothing done, where all places are held."""
        with self._lock:
            policy = self._policies.get(key)
            if policy is None:
                if not self._room():
                    return False
                policy = self._policies[key] = _Policy(self._pool.submit(self._load, key))
            self._policies.move_to_end(key)
            policy.holders += 1
            return True

    def release(self, key: DepotKey) -> None:
        with self._lock:
            policy = self._policies[key]
            policy.holders -= 1
            failed = policy.loading.done() and policy.loading.exception() is not None
            if failed and not policy.holders:
                del self._policies[key]  # the next request tries again

    def ready(self, key: DepotKey) -> bool:
        """Whether a held policy has arrived. Raises what its loading raised: WeightsNotArrived, AdapterUnsupported."""
        loading = self._policies[key].loading
        if not loading.done():
            return False
        loading.result()
        return True

    def wait_for_any(self, seconds: float) -> None:
        """Sleep until a policy arrives, or so long."""
        with self._lock:
            coming = [policy.loading for policy in self._policies.values() if not policy.loading.done()]
        if coming:
            wait(coming, timeout=seconds, return_when="FIRST_COMPLETED")

    def mix(self, rows: Sequence[DepotKey | None]) -> Mix:
        """The mix for a pass over prompts with these (held, ready) policies; None is the base model."""
        keys = _used(rows)
        return _mix(Joined([self._weights(key) for key in keys], pack=False), keys, rows)

    def decode_mix(self, rows: Sequence[DepotKey | None]) -> Mix:
        """The mix for decode steps, one token a row. What it lays out is kept while the set of policies is the same."""
        keys = _used(rows)
        if keys != self._joined[0]:
            self._joined = (keys, Joined([self._weights(key) for key in keys]))
        return _mix(self._joined[1], keys, rows)

    def steady_mix(self, rows: Sequence[DepotKey | None]) -> Mix:
        """The same for a step of `BaseModel.steady`: each policy's rows are computed by themselves."""
        keys = _used(rows)
        part = ApartPart([self._weights(key) for key in keys], _places(keys, rows), self._alike)
        return Mix((part,) if keys else ())

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __contains__(self, key: DepotKey) -> bool:
        return key in self._policies

    def _weights(self, key: DepotKey) -> tuple[LoraShape, Tensor]:
        return self._policies[key].loading.result()

    def _room(self) -> bool:
        """Make a place free if all are taken; False where all are held. Under the lock."""
        if len(self._policies) < self._limit:
            return True
        idle = next((key for key, policy in self._policies.items() if not policy.holders), None)
        if idle is None:
            return False
        del self._policies[idle]
        return True

    def _load(self, key: DepotKey) -> tuple[LoraShape, Tensor]:
        try:
            files = self._fetch(key)
        except KeyError as error:
            raise WeightsNotArrived(key) from error
        shape, flat = from_files(self._layout, files)
        return shape, self._placed(flat)

    def _placed(self, flat: Tensor) -> Tensor:
        """A copy of our own. Not finite it would spoil other rows: zero times infinity is no zero."""
        placed = flat.detach().to(self._device, self._dtype, copy=True)
        if not all_finite(placed):
            raise AdapterUnsupported("weights", "they are not finite; train on with a smaller learning rate")
        return placed


def _used(rows: Sequence[DepotKey | None]) -> tuple[DepotKey, ...]:
    return tuple(sorted({key for key in rows if key is not None}))


def _places(keys: Sequence[DepotKey], rows: Sequence[DepotKey | None]) -> list[int]:
    """Where each row's policy is among `keys`; -1 is the base model."""
    place = {key: index for index, key in enumerate(keys)}
    return [-1 if key is None else place[key] for key in rows]


def _mix(joined: Joined, keys: Sequence[DepotKey], rows: Sequence[DepotKey | None]) -> Mix:
    return Mix((JoinedPart(joined, _places(keys, rows)),) if keys else ())
