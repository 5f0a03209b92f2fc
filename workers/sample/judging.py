"""Judges, as samples: a question about each text of a rollout becomes a prompt, and all of an op's are drawn side by
side.

What is asked about is model output that would like to look good. A special token that it spells out stays letters, so
that it cannot end the question and answer in the judge's place.
"""

import secrets
from collections.abc import Callable
from typing import Final

from openrl.domain.errors import FieldInvalid, OpNotFound
from openrl.domain.ids import OpId
from openrl.domain.judge import Answers, AskJudge, Judged
from openrl.domain.op import Sample, SampleOp
from openrl.domain.outcome import Record, Result
from openrl.domain.rollout import Dropped, Message, RolledOut
from openrl.domain.sampling import SampleResult
from openrl.domain.tensor import DType
from openrl.ledger.port import Held
from workers.model.arrays import to_domain
from workers.sample.rollouts import Renderer, RollOuts, renderer_of
from workers.sample.work import SampleWork
from workers.work import Work

#: What a sample's fields are called in the request.
NAMES: Final = (("sampling_params", "sampling"), ("num_samples", "answers"))


class Judging:
    """A `Work` that does AskJudges by drawing samples; all else goes to another as it is. `read` answers what the
    ledger knows of an op."""

    def __init__(
        self, work: Work, samples: SampleWork, renderer: Renderer, read: Callable[[OpId], Record | None]
    ) -> None:
        self._work, self._samples, self._renderer, self._read = work, samples, renderer, read

    def __call__(self, held: Held) -> Result:
        op = held.op
        if not (isinstance(op, SampleOp) and isinstance(op.action, AskJudge)):
            return self._work(held)
        rolled = self._read(op.action.of)
        if rolled is None or not isinstance(rolled.result, RolledOut):
            raise OpNotFound(op.action.of)  # a failed one would have failed this op
        renderer = self._renderer.of(op.tenant)
        drawn = self._samples.draw(op, _questions(renderer, op.action, rolled.result.texts))
        told = [_told(renderer, op.action, sample, each) for sample, each in enumerate(drawn)]
        return Judged(
            answers=tuple(each for each in told if isinstance(each, Answers)),
            dropped=tuple(each for each in told if isinstance(each, Dropped)),
        )

    def abort(self, op_id: OpId) -> None:
        self._work.abort(op_id)

    def drain(self) -> None:
        self._work.drain()


def sample_work(samples: SampleWork, source: str, read: Callable[[OpId], Record | None]) -> Work:
    """All that a sample worker does, by the tokenizer in that folder."""
    renderer = renderer_of(source)
    return Judging(RollOuts(samples, renderer), samples, renderer, read)


def _questions(renderer: Renderer, ask: AskJudge, texts: tuple[str, ...]) -> list[Sample]:
    around = _around(renderer, ask)
    return [
        Sample(
            base_model=ask.base_model,
            policy=ask.policy,
            prompt=to_domain(_between(around, renderer.plain_ids(text)), DType.INT32),
            num_samples=ask.answers,
            params=ask.params,
        )
        for text in texts
    ]


def _around(renderer: Renderer, ask: AskJudge) -> list[list[int]]:
    """Tokens of the pieces between which each text stands. Raises FieldInvalid where they cannot be told."""
    if not ask.messages:
        return [renderer.ids(piece, begins=at == 0) for at, piece in enumerate(ask.text)]
    mark, where = f"[{secrets.token_hex(8)}]", f"{ask.where}.messages"
    messages = [Message(role=each.role, content=mark.join(each.pieces)) for each in ask.messages]
    pieces = renderer.said(messages, where, ask.base_model).split(mark)
    if len(pieces) - 1 != sum(len(each.pieces) - 1 for each in ask.messages):
        raise FieldInvalid(where, f"the chat template of {ask.base_model} does not say each message once")
    return [renderer.ids(piece, begins=False) for piece in pieces]


def _told(renderer: Renderer, ask: AskJudge, sample: int, drawn: SampleResult | FieldInvalid) -> Answers | Dropped:
    if isinstance(drawn, FieldInvalid):
        return Dropped(sample=sample, error=type(drawn).__name__, reason=_named(ask, drawn))
    texts = tuple(renderer.text(sequence.tokens) for sequence in drawn.sequences)
    return Answers(sample=sample, texts=texts)


def _between(around: list[list[int]], text: list[int]) -> list[int]:
    """The text between each piece and the next."""
    ids = list(around[0])
    for piece in around[1:]:
        ids += text
        ids += piece
    return ids


def _named(ask: AskJudge, error: FieldInvalid) -> str:
    """In the names that the request has for its fields."""
    field = error.field
    for old, new in NAMES:
        field = field.replace(old, new, 1)
    if field == "prompt":
        field = "messages" if ask.messages else "text"
    return f"{ask.where}.{field}: {error.problem}"
