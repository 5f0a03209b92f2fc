"""Base models that requests wait for while no worker serves them, and what a waiting op is told. Pure but for the
catalogue of models; knows no ledger."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from openrl.config import Settings
from openrl.domain.errors import BaseModelMissing
from openrl.domain.model import ModelCard
from openrl.domain.worker import Role, WorkerInfo
from openrl.models.catalogue import find, resolve
from queues.lanes import reward_queues, sample_queues, train_queue

#: Where nobody has told a bound yet, an op may have what a request can spell.
ANY: Final = 2**31 - 1

TRAINS, SAMPLES = frozenset({Role.DEVICE, Role.TRAIN}), frozenset({Role.DEVICE, Role.SAMPLE})


def awaited_card(model: str, settings: Settings) -> ModelCard | None:
    """The card of a model that the operator listed, without bounds: the worker that comes checks every op against its
    own. None for one that is not listed. A listed model answers to all its names in the catalogue, and to those that
    the operator gave it."""
    for name in settings.gateway.awaited_models:
        aliases = _aliases(name, settings)
        if _same(name, model) or model in aliases:
            return ModelCard(
                name=name,
                aliases=tuple(sorted(aliases)),
                tokenizer_id=_tokenizer(name, settings.home),
                architecture="",
                vocab_size=ANY,
                context_length=ANY,
                max_lora_rank=settings.train.max_lora_rank,
                full_runs=settings.train.full_runs,
                bounded=False,
            )
    return None


def awaited_names(settings: Settings) -> list[str]:
    """All that the listed models answer to, each once."""
    models = settings.gateway.awaited_models
    return list(dict.fromkeys(each for name in models for each in (name, *sorted(_aliases(name, settings)))))


def missing_worker(queue: str, workers: Sequence[WorkerInfo], models: Iterable[str], lanes: int) -> str | None:
    """Why an op waits in `queue`, where that is because nobody takes from it; None where somebody does. `models` are
    the canonical names of those that there may be queues of."""
    if queue in reward_queues(lanes):
        return None if _any(workers, frozenset({Role.REWARD})) else "no reward worker is up; waiting for one"
    for model in models:
        roles = TRAINS if queue == train_queue(model) else SAMPLES if queue in sample_queues(model, lanes) else None
        if roles is not None:
            return None if _any(workers, roles, model) else f"no worker serves {model} at the moment; waiting for one"
    return None


def _any(workers: Sequence[WorkerInfo], roles: frozenset[Role], model: str | None = None) -> bool:
    fitting = (worker for worker in workers if worker.role in roles and not worker.draining)
    return any(model is None or model in {card.name for card in worker.cards} for worker in fitting)


def _aliases(name: str, settings: Settings) -> set[str]:
    listed = find(name)
    pairs = (pair.partition("=") for pair in settings.gateway.awaited_aliases)
    given = {alias for alias, _, owner in pairs if owner == name}
    return (given | ({listed.name, *listed.aliases} if listed else set())) - {name}


def _same(name: str, other: str) -> bool:
    listed = find(name)
    return name == other or (listed is not None and listed is find(other))


def _tokenizer(name: str, home: Path) -> str:
    try:
        return str(resolve(name, home))
    except BaseModelMissing:  # here; its workers may have it
        return name
