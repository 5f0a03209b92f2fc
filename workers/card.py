"""What a worker tells of the base model it serves."""

from openrl.config import Settings
from openrl.domain.model import ModelCard
from openrl.models.catalogue import find


def card_of(
    source: str,
    settings: Settings,
    *,
    architecture: str,
    vocab_size: int,
    context_length: int,
    trains: bool,
    samples: bool,
) -> ModelCard:
    """Of the base model in the settings, which was found at `source` (a hub id or a folder)."""
    listed = find(settings.base_model)
    names = {source, *settings.model_aliases, *((listed.name, *listed.aliases) if listed else ())}
    return ModelCard(
        name=settings.base_model,
        aliases=tuple(sorted(names - {settings.base_model})),
        tokenizer_id=source,
        architecture=architecture,
        vocab_size=vocab_size,
        context_length=context_length,
        max_lora_rank=settings.train.max_lora_rank,
        full_runs=trains and settings.train.full_runs,
        trainable=trains,
        sampleable=samples,
    )
