"""Causal attention whose backward suits CPUs: PyTorch's own in bfloat16 is several times slower than plain products.

The forward pass is PyTorch's, so training and sampling compute the same; only the gradient is written out here. Where
nothing is to be gained (other devices, other dtypes, masks of the model, long rows) PyTorch's gradient stays.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from workers.model.attention_rows import BANDS, Shape, attention_trial, in_bands
from workers.model.folding import Folding

#: The name under which Transformers' models find this attention. It must not contain "sdpa": families whose scores are
#: capped are refused that.
NAME = "openrl_attention"
#: Longer rows keep PyTorch's gradient, which need not hold their scores.
LONGEST = 512
#: Scores held at once in a backward pass; few enough to stay near the processor.
SCORES = 2**21


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    folding: Folding | None = None,
    **kw: Any,
) -> tuple[Tensor, None]:
    """Attention as Transformers asks for it: query [B, H, T, D], key and value [B, G, S, D]; gives [B, T, H, D].

    With a `folding`, B are its tokens and T and S are 1; Transformers cannot know their mask, so the given one is not
    used.
    """
    if folding is not None:
        return _folded(module, query, key, value, folding, kw), None
    if attention_mask is None and query.shape[2] == key.shape[2] and _gains(query, key, value) and _plain(module, kw):
        return _ours(query, key, value, None, kw), None
    if attention_mask is not None and (bands := BANDS.get()) is not None:
        return in_bands(
            lambda q, k, v, mask: _plainly(module, q, k, v, mask, kw), query, key, value, attention_mask, bands
        ), None
    return _plainly(module, query, key, value, attention_mask, kw), None


def _plainly(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kw: dict[str, Any]) -> Tensor:
    """Attention [B, T, H, D]."""
    if kw.get("softcap") is not None:
        return _capped(query, key, value, mask, kw)
    if query.shape[2] == 1 and query.device.type == "cpu" and mask is not None and _plain(module, kw):
        return _decoding(query, key, value, mask, kw)
    out: Tensor = sdpa_attention_forward(module, query, key, value, mask, **kw)[0]
    return out


def _capped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, kw: dict[str, Any]) -> Tensor:
    """Scores that a soft cap bounds, which PyTorch's attention does not know. A mask is bool or to be added."""
    scale, cap = kw.get("scaling") or query.shape[3] ** -0.5, float(kw["softcap"])
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, 1) for each in (key, value))
    scores = torch.tanh(query @ key.mT * (scale / cap)).float() * cap
    if mask is None:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).tril(
            scores.shape[3] - scores.shape[2]
        )
    scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
    return (scores.softmax(-1).to(query.dtype) @ value).transpose(1, 2).contiguous()


def rows_are_alike(config: Any, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether rows of a decode step attend to the same bits together and each by itself."""
    heads = int(config.num_attention_heads)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    size = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    module = SimpleNamespace(num_key_value_groups=heads // kv_heads, is_causal=True)
    kw = {"softcap": getattr(config, "attn_logit_softcapping", None)}
    return attention_trial(
        lambda q, k, v, mask: _plainly(module, q, k, v, mask, kw), Shape(heads, kv_heads, size, dtype, device)
    )


def _folded(module: Any, query: Tensor, key: Tensor, value: Tensor, folding: Folding, kw: dict[str, Any]) -> Tensor:
    """Attention [N, 1, H, D] over the rows that the N tokens stand for."""
    queries = torch.split(query.squeeze(2), [each.tokens for each in folding.queries])
    keys, values = folding.keys(key.squeeze(2)), folding.keys(value.squeeze(2))
    outs = []
    for each, tokens, *seen in zip(folding.queries, queries, keys, values, strict=True):
        q, k, v = (rows.transpose(1, 2) for rows in (each.rows(tokens), *seen))
        mask = folding.mask(each.band, kw.get("sliding_window"), query.device)
        if mask is not None and _gains(q, k, v) and _plain(module, kw):
            out = _ours(q, k, v, mask, kw)
        else:
            out, _ = attend(module, q, k, v, None if mask is None else mask[None, None], **kw)
        outs.append(each.out(out))
    return torch.cat(outs).unsqueeze(1)


def _ours(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, kw: dict[str, Any]) -> Tensor:
    """Attention [B, T, H, D] where `seen`, bool [T, S], allows it; None is the causal mask."""
    scale = kw.get("scaling") or query.shape[3] ** -0.5
    out: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]  # torch annotates all but `apply`
        query, key, value, scale, seen
    )
    return out.transpose(1, 2).contiguous()


def _decoding(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, kw: dict[str, Any]) -> Tensor:
    """Attention [B, 1, H, D] of one new token per row. A CPU is done sooner with each query head by itself than with
    those that share a key head as rows of one block, which is how Transformers asks for it."""
    shared = query.shape[1] != key.shape[1]
    out = F.scaled_dot_product_attention(query, key, value, mask, scale=kw.get("scaling"), enable_gqa=shared)
    return out.transpose(1, 2)


def _gains(query: Tensor, key: Tensor, value: Tensor) -> bool:
    wanted = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    fitting = query.dtype is torch.bfloat16 and query.device.type == "cpu"
    return wanted and fitting and query.shape[2] > 1 and key.shape[2] <= LONGEST and key.shape == value.shape


def _plain(module: Any, kw: dict[str, Any]) -> bool:
    """No dropout, bias or capping, and causal."""
    causal = kw.get("is_causal")
    extras = (kw.get("dropout"), kw.get("softcap"), kw.get("position_bias"), kw.get("output_attentions"))
    return not any(extra is not None and extra is not False and extra != 0 for extra in extras) and bool(
        getattr(module, "is_causal", True) if causal is None else causal
    )


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, seen: Tensor | None) -> Tensor:
        out = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=seen,
            is_causal=seen is None,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        ctx.save_for_backward(query, key, value, out)
        ctx.scale, ctx.seen = scale, seen
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, out = ctx.saved_tensors
        batch, heads, length, width = query.shape
        blocks = batch * key.shape[1]  # query heads that share a key head are rows of one block
        q, do = (each.reshape(blocks, -1, width) for each in (query, slopes[0]))
        k, v = (each.reshape(blocks, -1, width) for each in (key, value))
        across = (slopes[0] * out).sum(-1, dtype=torch.float32).to(q.dtype).view(blocks, -1, 1)
        mask = torch.full((length, key.shape[2]), -torch.inf)
        mask = mask.triu(1) if ctx.seen is None else mask.masked_fill(ctx.seen, 0.0)
        mask = mask.repeat(heads // key.shape[1], 1)
        step = max(1, SCORES // mask.numel())
        pieces = zip(*(torch.split(each, step) for each in (q, k, v, do, across)), strict=True)
        parts = [_block_backward(*piece, mask=mask, scale=ctx.scale) for piece in pieces]
        dq, dk, dv = parts[0] if len(parts) == 1 else (torch.cat(each) for each in zip(*parts, strict=True))
        return dq.view(query.shape), dk.view(key.shape), dv.view(key.shape), None, None


def _block_backward(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, across: Tensor, *, mask: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query [n, R, D], key and value [n, S, D] from the output's, `do`; `across` is output · `do`."""
    # Scores are float32, as in the forward pass: their rounding is what costs accuracy, and they are cheap.
    share = torch.baddbmm(mask, q.float(), k.float().transpose(1, 2), alpha=scale).softmax(-1).to(q.dtype)
    scores = torch.bmm(do, v.transpose(1, 2)).sub_(across).mul_(share)
    nothing = q.new_zeros(())
    return (
        torch.baddbmm(nothing, scores, k, beta=0, alpha=scale),
        torch.baddbmm(nothing, scores.transpose(1, 2), q, beta=0, alpha=scale),
        torch.bmm(share.transpose(1, 2), do),
    )


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
