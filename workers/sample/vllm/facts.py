"""What there is to know of a base model without its weights, from its configuration files."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from openrl.domain.errors import BaseModelMissing, ModelUnsupported

HEAD_LIMIT = 258_048  #: vLLM carries LoRA on the head of a vocabulary up to so large


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    architecture: str
    vocab_size: int
    context_length: int  #: tokens
    eos_token_ids: tuple[int, ...]
    linears: tuple[tuple[str, int, int], ...]  #: that can carry LoRA: last part of the name, features in and out

    @property
    def targets(self) -> tuple[str, ...]:
        """Last parts of the names of the layers that can carry LoRA."""
        return tuple(sorted({name for name, _, _ in self.linears}))

    def lora_bytes(self, rank: int, item_bytes: int) -> int:
        """What one adapter takes that trains all there is."""
        return item_bytes * rank * sum(inside + outside for _, inside, outside in self.linears)


def facts_of(source: str, context_length: int = 0) -> Facts:
    """Of a hub id or a folder; `context_length` bounds the model's own where it is not 0. Loads no weights.

    Raises BaseModelMissing, or ModelUnsupported."""
    try:
        config = AutoConfig.from_pretrained(source)
        with torch.device("meta"):
            module: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    except (OSError, ValueError) as error:
        raise BaseModelMissing(source, str(error)) from error
    head = module.get_output_embeddings()
    text = config.get_text_config()
    longest = int(text.max_position_embeddings)
    if context_length > longest:
        raise ModelUnsupported(source, f"its context is {longest} tokens; OPENRL_SAMPLE__VLLM__MAX_MODEL_LEN is more")
    return Facts(
        architecture=type(module).__name__,
        vocab_size=int(head.out_features),
        context_length=context_length or longest,
        eos_token_ids=_eos(text, _generation(source)),
        linears=tuple(
            (name.rpartition(".")[2], each.in_features, each.out_features)
            for name, each in module.named_modules()
            if isinstance(each, nn.Linear) and (each is not head or head.out_features <= HEAD_LIMIT)
        ),
    )


def _generation(source: str) -> Any:
    try:
        return GenerationConfig.from_pretrained(source)
    except OSError:  # the model has none
        return None


def _eos(*holders: Any) -> tuple[int, ...]:
    """End-of-sequence ids of both configurations, each once."""
    ids: list[int] = []
    for holder in holders:
        value = getattr(holder, "eos_token_id", None)
        ids += value if isinstance(value, list) else [] if value is None else [value]
    return tuple(dict.fromkeys(ids))
