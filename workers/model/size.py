"""How large a base model is where memory is concerned: widths and counts of its text decoder. No torch in here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from workers.model.layout import Group, ModelLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Widths are elements per token."""

    layers: int
    hidden: int
    intermediate: int  #: of the MLP
    heads: int
    queries: int  #: query heads x head size
    keys: int  #: key heads x head size; values are as wide
    vocab: int
    item_bytes: int  #: of an element of the weights' dtype
    norms: int = 2  #: normalisations of the residual stream in a layer
    head_norms: bool = False  #: whether queries and keys are normalised too
    linears: int = 7  #: linear layers in a layer
    window: int | None = None  #: tokens that a layer with a sliding window sees
    window_layers: int = 0

    @classmethod
    def of(cls, config: Any, layout: ModelLayout, norms: Iterable[int], *, vocab: int, item_bytes: int) -> "ModelSize":
        """From a text model's transformers configuration; `norms` are the widths of all its normalisations."""
        layers, hidden, heads = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
        head = getattr(config, "head_dim", None) or hidden // heads
        widths = list(norms)
        window = getattr(config, "sliding_window", None)
        types = getattr(config, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * layers
        inner = [target for target in layout.targets if target.group is not Group.UNEMBED]
        return cls(
            layers=layers,
            hidden=hidden,
            intermediate=max(target.out_features for target in inner if target.group is Group.MLP),
            heads=heads,
            queries=heads * head,
            keys=(getattr(config, "num_key_value_heads", None) or heads) * head,
            vocab=vocab,
            item_bytes=item_bytes,
            norms=max(2, widths.count(hidden) // layers),
            head_norms=any(width in (head, heads * head) for width in widths if width != hidden),
            linears=-(-len(inner) // layers),
            window=window,
            window_layers=types.count("sliding_attention") if window else 0,
        )
