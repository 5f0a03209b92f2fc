"""A frozen weight laid out once in the order in which the CPU's matrix products read it, a second time in memory.

PyTorch's own product lays a bfloat16 weight out anew each time, which costs as much as a product of few rows itself:
packed, one row takes half the time, 8 rows 0.7 and 64 rows 0.85 of it (576 x 1536 on one Zen 5 core).
"""

import torch
from torch import Tensor


def packs(weight: Tensor) -> bool:
    """Whether a weight gains by it: bfloat16, on a CPU whose products oneDNN computes."""
    if weight.device.type != "cpu" or weight.dtype is not torch.bfloat16:
        return False
    return bool(torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


class PackedWeight:
    """A copy of a weight [out, in]; later changes of the weight do not reach it."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())

    def linear(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """What torch's `linear` makes of `x` [..., in] and `bias` [out]."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, bias, "none", [], "")
        return y

    def plus(self, x: Tensor, y: Tensor) -> Tensor:
        """`y` [n, out] plus the product of `x` [n, in]."""
        total: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, y, self._packed, None, "add")
        return total
