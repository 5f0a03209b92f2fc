from dataclasses import replace
from typing import Any

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import OpId, RunId, TenantId
from openrl.domain.op import CreateRun, Sample, TrainOp
from openrl.domain.run import LoraSpec
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import DType, Tensor
from openrl.ledger.port import Held
from openrl.testing import TOY_CARD
from workers.admission import Admitted, check


class Works:
    """Counts what comes through."""

    def __init__(self) -> None:
        self.done = 0
        self.told: list[str] = []

    def __call__(self, held: Held) -> Any:
        self.done += 1
        return held

    def abort(self, op_id: OpId) -> None:
        self.told.append(f"abort {op_id}")

    def drain(self) -> None:
        self.told.append("drain")


def held(rank: int) -> Held:
    action = CreateRun(base_model="toy", lora=LoraSpec(rank=rank))
    return Held(
        op=TrainOp(id=OpId("a"), tenant=TenantId("t"), run=RunId("r"), turn=0, action=action), epoch=1, attempt=1
    )


def test_a_rank_beyond_the_workers_bound_is_refused_whatever_the_gateway_knew() -> None:
    works = Works()
    admitted = Admitted(works, TOY_CARD)
    admitted(held(TOY_CARD.max_lora_rank))
    with pytest.raises(FieldInvalid, match=r"lora_config\.rank: is 33; toy takes ranks 1\.\.32"):
        admitted(held(TOY_CARD.max_lora_rank + 1))
    assert works.done == 1


def test_more_alternatives_than_the_vocabulary_has_are_refused() -> None:
    prompt = Tensor(dtype=DType.INT32, shape=(1,), data=bytes(4))
    sample = Sample(base_model="toy", policy=None, prompt=prompt, num_samples=1, params=SamplingParams(max_tokens=1))
    check(replace(sample, prompt_alternatives=TOY_CARD.vocab_size), TOY_CARD)
    with pytest.raises(FieldInvalid, match="prompt_alt_tokens_k: is 101"):
        check(replace(sample, prompt_alternatives=TOY_CARD.vocab_size + 1), TOY_CARD)


def test_the_rest_of_a_work_is_handed_on() -> None:
    works = Works()
    admitted = Admitted(works, TOY_CARD)
    admitted.abort(OpId("a"))
    admitted.drain()
    assert works.told == ["abort a", "drain"]
