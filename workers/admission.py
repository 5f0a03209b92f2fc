"""The worker's own look at an op before it is worked on. A gateway that had no card of the base model could not compare
a request with the model's bounds; engines check what concerns their tensors, and this checks the rest."""

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import OpId
from openrl.domain.model import ModelCard
from openrl.domain.op import Action, CreateRun, Sample
from openrl.domain.outcome import Result
from openrl.domain.run import LoraSpec
from openrl.ledger.port import Held
from workers.work import Work


def check(action: Action, card: ModelCard) -> None:
    """Raises FieldInvalid for what this worker does not take."""
    match action:
        case CreateRun(lora=LoraSpec(rank=rank)) if rank > card.max_lora_rank:
            raise FieldInvalid("lora_config.rank", f"is {rank}; {card.name} takes ranks 1..{card.max_lora_rank}")
        case Sample() if action.prompt_alternatives > card.vocab_size:
            raise FieldInvalid(
                "prompt_alt_tokens_k",
                f"is {action.prompt_alternatives}; the vocabulary has {card.vocab_size} tokens",
            )


class Admitted:
    """A `Work` that is done only for ops that pass the check."""

    def __init__(self, work: Work, card: ModelCard) -> None:
        self._work, self._card = work, card

    def __call__(self, held: Held) -> Result:
        check(held.op.action, self._card)
        return self._work(held)

    def abort(self, op_id: OpId) -> None:
        self._work.abort(op_id)

    def drain(self) -> None:
        self._work.drain()
