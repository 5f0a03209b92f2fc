"""One run's part of a forward_backward, and the rules it must keep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import FieldInvalid
from openrl.domain.limits import check_context, check_tokens
from openrl.domain.losses import TARGETS, check_config, check_datum
from workers.train.objective import LossKey, loss_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Datums of one run to be run forward and, unless `forward_only`, backward."""

    run_id: str
    data: Sequence[Datum]
    loss: Loss
    loss_config: Mapping[str, float] = field(default_factory=dict)
    forward_only: bool = False

    @property
    def tokens(self) -> int:
        return sum(datum.length for datum in self.data)

    @property
    def longest(self) -> int:
        """The place of the longest datum."""
        return max(range(len(self.data)), key=lambda place: self.data[place].length)

    @property
    def choices(self) -> int:
        """The most targets for one token."""
        return max(datum.inputs[TARGETS].elements // datum.length for datum in self.data)

    @property
    def loss_key(self) -> LossKey:
        return loss_key(self.loss, self.loss_config)


def check(batch: Batch, *, vocab_size: int, context_length: int) -> None:
    """Raises FieldInvalid for what the model or the loss cannot take."""
    if not batch.data:
        raise FieldInvalid("data", "is empty; send at least one datum")
    check_config(batch.loss, batch.loss_config)
    for place, datum in enumerate(batch.data):
        where = f"data[{place}]"
        check_datum(batch.loss, datum, where)
        check_context(datum.length, context_length, f"{where}.model_input")
        check_tokens(datum.tokens, vocab_size, f"{where}.model_input")
        check_tokens(datum.inputs[TARGETS], vocab_size, f"{where}.loss_fn_inputs.{TARGETS}")
