import math

import msgspec
import pytest

from openrl.domain.datum import Datum, Loss
from openrl.domain.run import AdamParams
from openrl.domain.tensor import DType, Tensor
from workers.train.batch import Batch
from workers.train.group.verbs import (
    Drop,
    Part,
    Put,
    Step,
    Stop,
    Train,
    Verb,
    decode_part,
    decode_verb,
    encode,
)

TOKENS = Tensor(dtype=DType.INT32, shape=(2,), data=b"\1\0\0\0\2\0\0\0")
VERBS: list[Verb] = [
    Put("s:train:0", ["run.safetensors"]),
    Drop("s:train:0"),
    Train(
        [
            Batch(
                run_id="s:train:0",
                data=[Datum(tokens=TOKENS, inputs={"target_tokens": TOKENS})],
                loss=Loss.DRO,
                loss_config={"beta": 0.5},
                forward_only=True,
            )
        ]
    ),
    Step([("s:train:0", AdamParams(learning_rate=0.5)), ("s:train:1", AdamParams())]),
    Stop(),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: type(verb).__name__)
def test_a_verb_arrives_as_it_was_sent(verb: Verb) -> None:
    assert decode_verb(encode(verb)) == verb


def test_numbers_that_are_not_finite_arrive_too() -> None:
    part = decode_part(encode(Part(sums=[{"loss": math.nan, "ratio": math.inf}], logprobs=[(0, 1, TOKENS)])))
    assert math.isnan(part.sums[0]["loss"]) and part.sums[0]["ratio"] == math.inf
    assert part.logprobs == [(0, 1, TOKENS)]


def test_what_is_no_verb_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_verb(msgspec.msgpack.encode({"type": "Exec", "code": "1"}))
