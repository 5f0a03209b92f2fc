"""LoRA adapters for vLLM, by policy: fetched from where policies lie into a bounded local folder that vLLM loads from.

A folder stays while a request needs it: vLLM forgets adapters as it likes, and loads them again from there. Each policy
is first loaded once by itself, because an adapter that vLLM cannot take would end its engine in the middle of a step.
"""

import asyncio
import itertools
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from vllm.lora.request import LoRARequest
from vllm.v1.engine.exceptions import EngineDeadError

from openrl.domain.errors import AdapterUnsupported, WeightsNotArrived
from openrl.domain.ids import DepotKey
from openrl.domain.policy import holds_model
from workers.model.adapter_files import CONFIG, WEIGHTS, config_of
from workers.sample.fetching import Fetch

#: In an adapter. Far above what training makes, and far below what makes NaN of a layer, which must not happen: vLLM's
#: CPU build keeps NaN where other requests come upon it.
LARGEST = 1e4


@dataclass(slots=True)
class _Policy:
    """One adapter, in its folder or on its way there."""

    request: LoRARequest
    loading: "asyncio.Task[None]"
    holders: int = 0  #: requests that need it


class Adapters:
    """At most `limit` folders in `folder`, and those that requests under way need. For one event loop."""

    def __init__(self, folder: Path, *, fetch: Fetch, targets: tuple[str, ...], limit: int) -> None:
        """`targets` are the last parts of the names of the layers that can carry LoRA."""
        self._folder, self._fetch, self._targets, self._limit = folder, fetch, frozenset(targets), limit
        self._policies: OrderedDict[DepotKey, _Policy] = OrderedDict()  # least recently used first
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def held(self, llm: Any, key: DepotKey | None) -> AsyncIterator[LoRARequest | None]:
        """What vLLM is asked with for a policy (None: the base model), whose folder stays inside of the block. Raises
        WeightsNotArrived or AdapterUnsupported."""
        if key is None:
            yield None
            return
        policy = self._policies.get(key) or self._begin(llm, key)
        self._policies.move_to_end(key)
        policy.holders += 1
        try:
            await asyncio.shield(policy.loading)
            yield policy.request
        finally:
            policy.holders -= 1
            self._tidy()

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self, llm: Any, key: DepotKey) -> _Policy:
        if holds_model(key):
            raise AdapterUnsupported(
                "weights",
                "they are all weights of a model, which vLLM workers cannot sample; run a torch sample worker",
            )
        number = next(self._numbers)
        folder = self._folder / str(number)
        request = LoRARequest(lora_name=key, lora_int_id=number, lora_path=str(folder))
        policy = self._policies[key] = _Policy(request, asyncio.ensure_future(self._load(llm, key, request, folder)))
        return policy

    async def _load(self, llm: Any, key: DepotKey, request: LoRARequest, folder: Path) -> None:
        await asyncio.to_thread(self._bring, key, folder)
        try:
            await llm.add_lora(request)
        except EngineDeadError:
            raise
        except Exception as error:
            raise AdapterUnsupported(str(key), f"vLLM cannot take it: {error}") from error

    def _bring(self, key: DepotKey, folder: Path) -> None:
        try:
            files = self._fetch(key)
        except KeyError:
            raise WeightsNotArrived(key) from None
        check_files(files, self._targets)
        folder.mkdir(parents=True, exist_ok=True)
        for name in (CONFIG, WEIGHTS):
            (folder / name).write_bytes(files[name])

    def _tidy(self) -> None:
        """Drop what failed, and what was used longest ago where there is too much."""
        for key, policy in list(self._policies.items()):
            if policy.holders or not policy.loading.done():
                continue
            failed = policy.loading.cancelled() or policy.loading.exception() is not None
            if failed or len(self._policies) > self._limit:
                del self._policies[key]
                shutil.rmtree(policy.request.lora_path, ignore_errors=True)


def check_files(files: Mapping[str, bytes], targets: frozenset[str]) -> None:
    """Raises AdapterUnsupported for an adapter of which vLLM would leave something out, or that is none at all."""
    config = config_of(files)
    if config.get("alpha_pattern"):
        raise AdapterUnsupported("alpha_pattern", "vLLM does not know it; a torch sample worker does")
    try:
        tensors = load(files[WEIGHTS])
    except (KeyError, SafetensorError) as error:
        raise AdapterUnsupported(WEIGHTS, "it is missing or is not in safetensors format") from error
    for name, tensor in tensors.items():
        module = name.partition(".lora_")[0].rpartition(".")[2]
        if module not in targets:
            raise AdapterUnsupported(
                name,
                f"vLLM cannot apply LoRA to {module!r} of this model; train without it (train_unembed=False for the "
                "head), or a torch sample worker can (OPENRL_SAMPLE__ENGINE=torch)",
            )
        if not bool((tensor.abs() <= LARGEST).all()):
            raise AdapterUnsupported(WEIGHTS, "it holds values that are not finite, or give logits that are not finite")
