"""Causal attention whose backward suits CPUs: PyTorch's own in bfloat16 is several times slower than plain products.

The forward pass is PyTorch's, so training and sampling compute the same; only the gradient is written out here. Where
nothing is to be gained (other devices, other dtypes, masks, long rows) PyTorch's gradient stays.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from workers.model.folding import Folding

#: The name under which Transformers' models find this attention.
NAME = "openrl_sdpa"
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
    if attention_mask is None and _gains(query, key, value) and _plain(module, kw):
        scale = kw.get("scaling") or query.shape[3] ** -0.5
        out: Tensor = _CausalAttention.apply(  # type: ignore[no-untyped-call]  # torch annotates all but `apply`
            query, key, value, scale
        )
        return out.transpose(1, 2).contiguous(), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kw)


def _folded(module: Any, query: Tensor, key: Tensor, value: Tensor, folding: Folding, kw: dict[str, Any]) -> Tensor:
    """Attention [N, 1, H, D] over the rows that the N tokens stand for."""
    q, k, v = (folding.unfold(each.squeeze(2)).transpose(1, 2) for each in (query, key, value))
    out, _ = attend(module, q, k, v, folding.mask(kw.get("sliding_window"), query.device), **kw)
    return folding.fold(out).unsqueeze(1)


def _gains(query: Tensor, key: Tensor, value: Tensor) -> bool:
    wanted = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    fitting = query.dtype is torch.bfloat16 and query.device.type == "cpu"
    return wanted and fitting and 1 < query.shape[2] == key.shape[2] <= LONGEST and key.shape == value.shape


def _plain(module: Any, kw: dict[str, Any]) -> bool:
    """No dropout, bias or capping, and causal."""
    causal = kw.get("is_causal")
    extras = (kw.get("dropout"), kw.get("softcap"), kw.get("position_bias"), kw.get("output_attentions"))
    return not any(extra is not None and extra is not False and extra != 0 for extra in extras) and bool(
        getattr(module, "is_causal", True) if causal is None else causal
    )


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        grouped = query.shape[1] != key.shape[1]
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=grouped)
        ctx.save_for_backward(query, key, value, out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, out = ctx.saved_tensors
        batch, heads, length, width = query.shape
        blocks = batch * key.shape[1]  # query heads that share a key head are rows of one block
        q, do = (each.reshape(blocks, -1, width) for each in (query, slopes[0]))
        k, v = (each.reshape(blocks, length, width) for each in (key, value))
        across = (slopes[0] * out).sum(-1, dtype=torch.float32).to(q.dtype).view(blocks, -1, 1)
        mask = torch.full((length, length), -torch.inf).triu(1).repeat(heads // key.shape[1], 1)
        step = max(1, SCORES // mask.numel())
        pieces = zip(*(torch.split(each, step) for each in (q, k, v, do, across)), strict=True)
        parts = [_block_backward(*piece, mask=mask, scale=ctx.scale) for piece in pieces]
        dq, dk, dv = parts[0] if len(parts) == 1 else (torch.cat(each) for each in zip(*parts, strict=True))
        return dq.view(query.shape), dk.view(key.shape), dv.view(key.shape), None


def _block_backward(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, across: Tensor, *, mask: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query [n, R, D], key and value [n, T, D] from the output's, `do`; `across` is output · `do`."""
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
