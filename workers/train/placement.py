"""Where the tokens of a pass lie in the model's input, and the way back. Knows no losses, and adapters only as groups.

Groups are the datums of one adapter each. Padded: a datum is a row. Folded: a token is a row, and what datums of a
group begin with is there once (see `workers/model/folding.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from openrl.domain.datum import Datum
from openrl.domain.tensor import DType
from workers.model.arrays import joined, to_domain
from workers.model.folding import Folding
from workers.model.prefixes import layout


@dataclass(frozen=True, slots=True)
class Placement:
    ids: Tensor  #: int64 [B, T]
    row_ends: Sequence[int]  #: rows of `ids` in the groups up to each
    token_ends: Sequence[int]  #: the same in real tokens
    options: Mapping[str, object] = field(default_factory=dict)  #: what the model needs to know beside `ids`
    inside: Tensor | None = None  #: bool [B, T], where real tokens stand; None for everywhere
    order: Tensor | None = None  #: int64 [M] on the CPU: the datums' tokens as the model has them; None if they are
    owners: Tensor | None = None  #: int64 [M], rising: which real token each of them is; None if each is its own

    @property
    def padding(self) -> int:
        """Places of `ids` that hold no token."""
        return self.ids.numel() - self.token_ends[-1]

    def tokens(self, hidden: Tensor) -> Tensor:
        """The real tokens of `hidden` [B, T, width], as [N, width]."""
        return hidden.flatten(0, 1) if self.inside is None else hidden[self.inside]

    def spread(self, slope: Tensor, hidden: Tensor) -> Tensor:
        """`slope` of the real tokens [N, width] in the form of `hidden`; zero on padding."""
        if self.inside is None:
            return slope.view(hidden.shape)
        whole = torch.zeros_like(hidden)
        whole[self.inside] = slope
        return whole

    def unsorted(self, values: Tensor) -> Tensor:
        """Values [M, ...] on the CPU, as the model has the tokens, in the datums' order."""
        if self.order is None:
            return values
        back = torch.empty_like(values)
        back[self.order] = values
        return back


def text(datum: Datum) -> bytes:
    """Its tokens, four bytes each."""
    tokens = datum.tokens
    return tokens.data if tokens.dtype is DType.INT32 else to_domain(joined([tokens], torch.int32), DType.INT32).data


def padded(groups: Sequence[Sequence[Datum]], device: torch.device) -> Placement:
    """Datums as rows, padded on the right.

    Padding needs no attention mask: attention is causal, so real tokens never see what comes after them.
    """
    lengths = [datum.length for group in groups for datum in group]
    longest = max(lengths)
    row_ends = list(accumulate(len(group) for group in groups))
    token_ends = list(accumulate(sum(datum.length for datum in group) for group in groups))
    flat = _joined(groups)
    if min(lengths) == longest:
        return Placement(flat.view(-1, longest).to(device), row_ends, token_ends)
    inside = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
    ids = torch.zeros(inside.shape, dtype=torch.int64).masked_scatter_(inside, flat)
    return Placement(ids.to(device), row_ends, token_ends, inside=inside.to(device))


def folded(groups: Sequence[Sequence[Datum]], device: torch.device) -> Placement:
    """Tokens as rows, each once. The datums of a group must come sorted by their `text`."""
    laid = layout([[text(datum) for datum in group] for group in groups])
    folding = Folding(laid)
    lengths = torch.tensor([datum.length for group in groups for datum in group])
    columns = torch.arange(laid.longest).expand(len(lengths), -1)
    inside = columns < lengths[:, None]
    number = folding.grid.spread(torch.arange(folding.grid.tokens))[inside]
    ids, positions = torch.empty(2, folding.grid.tokens, dtype=torch.int64)
    ids[number], positions[number] = _joined(groups), columns[inside]
    owners, order = torch.sort(number, stable=True)
    options = {"position_ids": positions[:, None].to(device), "folding": folding}
    return Placement(
        ids[:, None].to(device), laid.ends, laid.ends, options=options, order=order, owners=owners.to(device)
    )


def _joined(groups: Sequence[Sequence[Datum]]) -> Tensor:
    return joined([datum.tokens for group in groups for datum in group], torch.int64)
