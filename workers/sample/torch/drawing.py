"""Samples get their tokens, and end. Knows neither cache nor model."""

from collections.abc import Sequence
from math import isnan

from openrl.domain.errors import FieldInvalid
from workers.sample.torch.logits import Drawn
from workers.sample.torch.rows import Row, take_top


def take(rows: Sequence[Row], drawn: Drawn) -> list[int]:
    """Give each row its token; which rows have ended."""
    tokens, logprobs = drawn.tokens.tolist(), drawn.logprobs.tolist()
    if drawn.top_ids is not None and drawn.top_logprobs is not None:
        take_top(rows, drawn.top_ids.cpu(), drawn.top_logprobs.cpu())
    return [
        index
        for index, (row, token, logprob) in enumerate(zip(rows, tokens, logprobs, strict=True))
        if _ended(row, token, logprob)
    ]


def weights_give_nonsense() -> FieldInvalid:
    return FieldInvalid("model_path", "these weights give logits that are not finite")


def _ended(row: Row, token: int, logprob: float) -> bool:
    if isnan(logprob):
        row.spoilt = True
        row.job.fail(weights_give_nonsense())
        return True
    try:
        reason = row.take(token, logprob)
    except Exception as error:  # the injected text decoder's
        row.job.fail(error)
        return True
    if reason is None:
        return False
    row.end(reason)
    row.job.settle()
    return True
