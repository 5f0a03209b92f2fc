import math
import time
from typing import get_args

import msgspec
import pytest

from openrl.domain.datum import Datum, Loss
from openrl.domain.ids import DepotKey, OpId, RunId, SamplerId
from openrl.domain.judge import Answers, AskJudge, Judged, Said
from openrl.domain.op import (
    Action,
    Bell,
    CreateRun,
    ForwardBackward,
    LoadWeights,
    OptimStep,
    Sample,
    SavePolicy,
    SaveWeights,
    ScoreTexts,
)
from openrl.domain.outcome import (
    BatchResult,
    Category,
    Failure,
    Result,
    RunCreated,
    Sampled,
    Scores,
    StepResult,
    WeightsLoaded,
    WeightsSaved,
)
from openrl.domain.rollout import (
    Dropped,
    Grade,
    Graded,
    Message,
    RewardPart,
    RolledOut,
    RollOut,
    ScoreGroup,
)
from openrl.domain.run import AdamParams, LoraSpec
from openrl.domain.sampling import SampleResult, SamplingParams, Sequence, StopReason, TopLogprobs
from openrl.domain.tensor import DType, Tensor
from openrl.ledger import codec

INTS = Tensor(dtype=DType.INT32, shape=(2, 2), data=bytes(range(16)))
LONGS = Tensor(dtype=DType.INT64, shape=(1,), data=bytes(range(8)))
FLOATS = Tensor(dtype=DType.FLOAT32, shape=(2,), data=b"\x00\x00\xc0\x7f\xff\xfe\xfd\xfc")
TOP = TopLogprobs(token_ids=INTS, logprobs=FLOATS)
LORA = LoraSpec(rank=8, seed=2**63, train_unembed=False)
PARAMS = SamplingParams(max_tokens=5, seed=-3, stop_strings=("\n", "é"), stop_tokens=(0, 7), temperature=0.0)
SEQUENCE = Sequence(tokens=INTS, logprobs=FLOATS, stop_reason=StopReason.STOP, top_logprobs=TOP)
KEY, PATH = DepotKey("runs/r/1"), "tinker://r/weights/a"

THINGS = (
    CreateRun(base_model="m", lora=LORA),
    LoadWeights(base_model="m", lora=None, source=KEY, path=PATH, with_optimizer=True),
    ForwardBackward(
        data=(Datum(tokens=INTS, inputs={"weights": FLOATS, "target_tokens": LONGS}), Datum(tokens=INTS)),
        loss=Loss.PPO,
        loss_config={"clip_low_threshold": 0.8},
        forward_only=True,
    ),
    OptimStep(adam=AdamParams(learning_rate=3e-5, grad_clip_norm=1.0)),
    SaveWeights(target=KEY, path=PATH, ttl_seconds=60, user_metadata={"a": "b"}),
    SavePolicy(target=KEY, sampler=SamplerId("s:sample:0")),
    Sample(base_model="m", policy=KEY, prompt=INTS, num_samples=4, params=PARAMS, target_prompt_logprobs=LONGS),
    RollOut(base_model="m", policy=KEY, number=3, num_samples=4, params=PARAMS, tokens=INTS),
    ScoreGroup(of=OpId("o"), samples=4, rewards=(RewardPart(name="exact", weight=0.5),), context={"answer": "b"}),
    AskJudge(
        of=OpId("o"),
        reward=1,
        base_model="m",
        policy=KEY,
        answers=2,
        params=PARAMS,
        messages=(Said(role="user", pieces=("is ", " é?")),),
    ),
    ScoreTexts(reward="exact", texts=("a", ""), contexts=({}, {"answer": "b"})),
    RunCreated(run=RunId("r")),
    WeightsLoaded(run=RunId("r"), path=PATH),
    BatchResult(logprobs=(FLOATS, FLOATS), metrics={"loss:sum": 1.25}),
    StepResult(metrics={}),
    WeightsSaved(path=None, sampler=SamplerId("s")),
    Sampled(
        result=SampleResult(
            sequences=(SEQUENCE,),
            prompt_logprobs=FLOATS,
            top_prompt_logprobs=TOP,
            target_prompt_logprobs=FLOATS,
            prompt_alternatives=(LONGS, FLOATS),
        )
    ),
    RolledOut(prompt=INTS, sequences=(SEQUENCE,), texts=("é",), queued_seconds=0.5, sampled_seconds=1.0),
    Judged(
        answers=(Answers(sample=0, texts=("yes", "é")),), dropped=(Dropped(sample=1, error="E", reason="too long"),)
    ),
    Graded(
        grades=(Grade(sample=0, reward=0.5, parts={"exact": 1.0}, info={"exact": "yes"}),),
        dropped=(Dropped(sample=1, error="GraderFailed", reason="too slow"),),
        scored_seconds=0.1,
    ),
    Scores(values=(1.0, -0.5), info=({"why": "exact"},)),
)


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.kind)
def test_every_action_and_result_comes_back_equal(thing):
    again = codec.decode(thing.kind, codec.encode(thing))
    assert again == thing
    assert type(again) is type(thing)


def test_no_action_or_result_is_left_out():
    assert {type(thing) for thing in THINGS} == {*get_args(Action), *get_args(Result)}
    assert len({thing.kind for thing in THINGS}) == len(THINGS)


def test_numbers_that_are_not_finite_come_back():
    metrics = codec.decode("step_result", codec.encode(StepResult(metrics={"a": math.inf, "b": math.nan}))).metrics
    assert metrics["a"] == math.inf
    assert math.isnan(metrics["b"])


def test_bells_and_failures_come_back_equal():
    bell = Bell(op=OpId("a"), queue="q", task="t", summary="s")
    failure = Failure(error="RunLost", message="gone", category=Category.SERVER)
    assert codec.decode_bell(codec.encode(bell)) == bell
    assert codec.decode_failure(codec.encode(failure)) == failure


def test_an_unknown_kind_is_a_key_error():
    with pytest.raises(KeyError):
        codec.decode("no_such_kind", b"")


def test_bytes_of_another_kind_are_refused():
    with pytest.raises(msgspec.ValidationError):
        codec.decode("optim_step", codec.encode(RunCreated(run=RunId("r"))))


def test_a_thousand_datums_take_milliseconds():
    row = Tensor(dtype=DType.FLOAT32, shape=(128,), data=bytes(512))
    datum = Datum(tokens=row, inputs={"target_tokens": row, "logprobs": row, "advantages": row})
    action = ForwardBackward(data=(datum,) * 1000, loss=Loss.PPO)
    fastest = math.inf
    for _ in range(5):
        start = time.perf_counter()
        codec.decode(action.kind, codec.encode(action))
        fastest = min(fastest, time.perf_counter() - start)
    assert fastest < 0.1, "0.7 and 3.2 ms on an idle core"


def test_a_prompt_of_messages_comes_back():
    said = (Message(role="user", content="é"), Message(role="assistant", content=""))
    thing = RollOut(base_model="m", policy=None, number=0, num_samples=1, params=PARAMS, messages=said)
    assert codec.decode(thing.kind, codec.encode(thing)) == thing
