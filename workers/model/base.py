"""The frozen base model, with room for adapters at every linear layer. Train and sample engines share one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from openrl.domain.errors import BaseModelMissing, ModelUnsupported
from workers.model import attention
from workers.model.alike import Alike
from workers.model.folding import Folding
from workers.model.layout import Group, ModelLayout, Target
from workers.model.lora import CurrentMix, Mix, MultiLoraLinear, SteadyActivation
from workers.model.packed import PackedWeight, packs
from workers.model.prefixes import Layout, Piece
from workers.model.size import ModelSize
from workers.model.spans import SpanMix

#: Which part of a decoder layer a linear belongs to, by the names that model families use.
_GROUPS = {
    Group.ATTN: re.compile(r"\.(self_attn|attn|attention)\.\w+$"),
    Group.MLP: re.compile(r"\.(mlp|feed_forward)\.\w+$"),
}
#: What model families call the activation of their MLPs.
_ACTIVATIONS = ("act_fn", "activation_fn", "act")


class BaseModel:
    """A causal language model whose weights never change. Not thread-safe: one thread computes at a time."""

    def __init__(self, module: Any, source: str) -> None:
        """Prepares a Hugging Face causal LM in place. Raises ModelUnsupported naming `source`."""
        self.module = module.requires_grad_(False)
        module.set_attn_implementation(attention.NAME)
        config = module.config.get_text_config()
        _check_attention(module, config, source)
        self.softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self._current = CurrentMix()
        self.alike = Alike()
        self._decoder: Any = module.get_decoder()
        self.layout = _fit_adapters(module, self._current, source)
        module.eval()
        self.unembed: MultiLoraLinear = module.get_output_embeddings()
        self._layers = _recomputable(module)
        first = next(module.parameters())
        self.device: torch.device = first.device
        self.dtype: torch.dtype = first.dtype
        self.vocab_size: int = self.unembed.out_features
        self.context_length: int = config.max_position_embeddings
        self.eos_token_ids: tuple[int, ...] = _eos(config, getattr(module, "generation_config", None))
        self.architecture: str = type(module).__name__
        self.size = ModelSize.of(
            config, self.layout, _norms(module), vocab=self.vocab_size, item_bytes=self.dtype.itemsize
        )
        self._check_halves(source)
        #: Whether passes may be folded (see `folding.py`): the family must hand `folding` to attention.
        self.folds: bool = self._can_fold(config)

    def twin(self) -> "BaseModel":
        """The same weights with passes and a mix of its own, for another thread."""
        shared = {id(tensor): tensor for tensor in (*self.module.parameters(), *self.module.buffers())}
        other = copy(self)
        other.module, other._current = deepcopy((self.module, self._current), shared)
        other.alike = Alike()
        other._decoder = other.module.get_decoder()
        other.unembed = other.module.get_output_embeddings()
        other._layers = _recomputable(other.module)
        return other

    def copied(self) -> "BaseModel":
        """The same model with weights of its own, which may be written to: none is laid out for decoding, as that
        would go on with the old ones. For the thread that computes with this one."""
        packed = [layer.packed for layer in self.module.modules() if isinstance(layer, MultiLoraLinear)]
        return deepcopy(self, {id(each): None for each in packed if each is not None})

    def pack(self, most_bytes: int) -> int:
        """Lay the linear layers' weights out for products of few rows, where that helps and takes at most so many
        bytes. Returns the bytes taken; see `packed.py`."""
        layers = [each for each in self.module.modules() if isinstance(each, MultiLoraLinear) and packs(each.weight)]
        size = sum(layer.weight.nbytes for layer in layers)
        if size > most_bytes:
            return 0
        for layer in layers:
            layer.packed = PackedWeight(layer.weight)
        return size

    @contextmanager
    def mixed(self, mix: Mix | SpanMix) -> Iterator[None]:
        """Inside, all passes obey `mix`; a backward that recomputes must run inside too."""
        before, self._current.mix = self._current.mix, mix
        try:
            yield
        finally:
            self._current.mix = before

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Inside, a decode step of one token a row gives each row the same bits whatever rows are beside it. The mix
        must keep to that as well, and the rows attend each by itself unless they `attend_alike`."""
        self._current.alike = self.alike
        try:
            yield
        finally:
            self._current.alike = None

    @property
    def attend_alike(self) -> bool:
        """Whether rows of a decode step attend to the same bits whatever rows are in a band with them."""
        config = self.module.config.get_text_config()
        return self.alike.known("attention", lambda: attention.rows_are_alike(config, self.dtype, self.device))

    @contextmanager
    def recomputing(self, wanted: bool) -> Iterator[None]:
        """Inside, if `wanted`, decoder layers keep only their input and compute again in backward: slow but small."""
        # Transformers decides by the layer's own `training` flag; its children stay in eval mode: nothing else changes.
        for layer in self._layers:
            layer.training = wanted
        try:
            yield
        finally:
            for layer in self._layers:
                layer.training = False

    def hidden(self, input_ids: Tensor, **kw: Any) -> Tensor:
        """Last hidden states [B, T, width] of `input_ids` int64 [B, T]; `kw` (cache, mask, positions) goes along."""
        kw.setdefault("use_cache", kw.get("past_key_values") is not None)
        states: Tensor = self._decoder(input_ids=input_ids, **kw).last_hidden_state
        return states

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab] of hidden states [B, T, width] or [B, width], in the base's dtype; rows as in the mix."""
        logits: Tensor = self.unembed(hidden)
        if self.softcap is None:
            return logits
        return torch.tanh(logits / self.softcap) * self.softcap

    @torch.no_grad()
    def _check_halves(self, source: str) -> None:
        """Decoder and head together must be the whole model: some families scale logits in between."""
        ids = torch.arange(4, device=self.device).unsqueeze(0) % self.vocab_size
        whole = self.module(input_ids=ids, use_cache=False).logits
        if not torch.allclose(self.head(self.hidden(ids)), whole, rtol=1e-2, atol=1e-2, equal_nan=True):
            raise ModelUnsupported(source, f"{self.architecture} changes its logits in a way this server does not know")

    @torch.no_grad()
    def _can_fold(self, config: Any) -> bool:
        """By trying: two rows folded must come out as the rows themselves."""
        types = getattr(config, "layer_types", None)
        if not set(types or ()) <= {"full_attention", "sliding_attention"}:
            return False
        ids = torch.tensor([[0, 1, 2, 3], [0, 1, 3, 2]], device=self.device) % self.vocab_size
        folding = Folding(Layout((Piece(0, 0, 2, 0, 2, True), Piece(2, 0, 2, 2, 4, False)), (6,), 2, 4))
        try:
            hidden = self.hidden(
                folding.grid.first(ids)[:, None],
                position_ids=torch.tensor([[0], [1], [2], [3], [2], [3]], device=self.device),
                folding=folding,
            )
        except TypeError:  # the family's decoder takes no arguments but its own
            return False
        window = getattr(config, "sliding_window", None) if types is None or "sliding_attention" in types else None
        if window not in folding.windows:  # the rows are too short to show what a layer that hides it would do
            return False
        apart = self.hidden(ids)
        return torch.allclose(folding.grid.spread(hidden[:, 0]), apart, rtol=1e-2, atol=1e-2 * float(apart.abs().max()))


def load_base(source: str | Path, *, device: torch.device, dtype: torch.dtype) -> BaseModel:
    """Loads a hub id or a folder. Raises BaseModelMissing, or ModelUnsupported where adapters find no place."""
    try:
        module: Any = AutoModelForCausalLM.from_pretrained(str(source), dtype=dtype, attn_implementation=attention.NAME)
    except (OSError, ValueError) as error:
        raise BaseModelMissing(str(source), str(error)) from error
    return BaseModel(module.to(device), str(source))


def _recomputable(module: Any) -> list[Any]:
    """The decoder layers, switched so that they recompute in backward while their `training` flag is set."""
    layers: list[Any] = [layer for layer in module.modules() if isinstance(layer, GradientCheckpointingLayer)]
    for layer in layers:
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
    return layers


def _fit_adapters(module: Any, current: CurrentMix, source: str) -> ModelLayout:
    """Puts a MultiLoraLinear in the place of every target and returns the targets in order."""
    head = module.get_output_embeddings()
    found = [
        (Target(name, linear.in_features, linear.out_features, group), linear)
        for name, linear in module.named_modules()
        if isinstance(linear, nn.Linear) and (group := _group(name, linear, head)) is not None
    ]
    _check_found(module, [target for target, _ in found], source)
    for target, linear in found:
        parent, _, leaf = target.name.rpartition(".")
        setattr(module.get_submodule(parent), leaf, MultiLoraLinear(linear, target.name, current))
    for name, activation in [*module.named_modules()]:
        parent, _, leaf = name.rpartition(".")
        if leaf in _ACTIVATIONS:
            setattr(module.get_submodule(parent), leaf, SteadyActivation(activation, current))
    return ModelLayout(tuple(target for target, _ in found))


def _group(name: str, linear: nn.Linear, head: nn.Module | None) -> Group | None:
    if linear is head:
        return Group.UNEMBED
    return next((group for group, pattern in _GROUPS.items() if pattern.search(name)), None)


def _check_attention(module: Any, config: Any, source: str) -> None:
    """Families that PyTorch's attention does not suit are known only if a soft cap is the reason."""
    if not getattr(module, "_supports_sdpa", True) and getattr(config, "attn_logit_softcapping", None) is None:
        why = f"the attention of {type(module).__name__} has parts that this server does not know"
        raise ModelUnsupported(source, why)


def _check_found(module: Any, targets: list[Target], source: str) -> None:
    """Every decoder layer must offer attention and MLP linears, and the model a linear head."""
    layers = module.config.get_text_config().num_hidden_layers
    for group, wanted in ((Group.ATTN, 2 * layers), (Group.MLP, 2 * layers), (Group.UNEMBED, 1)):
        count = sum(target.group is group for target in targets)
        if count < wanted:
            raise ModelUnsupported(source, f"it has {count} {group} linear layers; at least {wanted} were expected")


def _norms(module: Any) -> Iterator[int]:
    """How wide each normalisation is."""
    for name, part in module.named_modules():
        weight = getattr(part, "weight", None)
        if "norm" in name.rpartition(".")[2] and isinstance(weight, Tensor):
            yield weight.numel()


def _eos(config: Any, generation: Any) -> tuple[int, ...]:
    """End-of-sequence ids of both configs, each once."""
    ids: list[int] = []
    for holder in (generation, config):
        value = getattr(holder, "eos_token_id", None)
        ids += value if isinstance(value, list) else [] if value is None else [value]
    return tuple(dict.fromkeys(ids))
