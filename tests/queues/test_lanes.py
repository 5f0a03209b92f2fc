from dataclasses import replace

import pytest

from openrl.domain.datum import Datum, Loss
from openrl.domain.ids import BatchId, OpId, RunId, SamplerId, TenantId
from openrl.domain.judge import AskJudge
from openrl.domain.op import CreateRun, ForwardBackward, OptimStep, RewardOp, Sample, SampleOp, ScoreTexts, TrainOp
from openrl.domain.rollout import RewardPart, RollOut, ScoreGroup
from openrl.domain.run import AdamParams, LoraSpec
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import DType, Tensor
from queues import lanes

TOKENS = Tensor(dtype=DType.INT32, shape=(3,), data=bytes(12))


def train_op(action: CreateRun | ForwardBackward | OptimStep) -> TrainOp:
    return TrainOp(id=OpId("op1"), tenant=TenantId("t"), run=RunId("s:train:0"), turn=4, action=action)


def sample_op(sampler: str) -> SampleOp:
    action = Sample(base_model="tiny", policy=None, prompt=TOKENS, num_samples=2, params=SamplingParams(max_tokens=5))
    return SampleOp(id=OpId("op2"), tenant=TenantId("t"), sampler=SamplerId(sampler), number=0, action=action)


def test_a_bell_says_run_turn_and_tokens() -> None:
    action = ForwardBackward(data=(Datum(tokens=TOKENS), Datum(tokens=TOKENS)), loss=Loss.PPO)
    bell = lanes.bell_of(train_op(action), model="tiny", lanes=4)
    assert bell.task == "train.forward_backward"
    assert bell.summary == "run=s:train:0 turn=4 tokens=6 datums=2 loss=ppo"
    assert bell.queue == lanes.train_queue("tiny")


@pytest.mark.parametrize(("lora", "words"), [(LoraSpec(rank=8), "rank=8"), (None, "all weights")])
def test_a_creation_says_what_is_trained(lora: LoraSpec | None, words: str) -> None:
    bell = lanes.bell_of(train_op(CreateRun(base_model="tiny", lora=lora)), model="tiny", lanes=4)
    assert bell.summary.endswith(f"model=tiny {words}")


def test_every_training_action_has_a_task_name() -> None:
    bell = lanes.bell_of(train_op(OptimStep(adam=AdamParams())), model="tiny", lanes=4)
    assert bell.task in lanes.TRAIN_TASKS


def test_models_with_similar_names_do_not_share_a_queue() -> None:
    assert lanes.train_queue("org/model_1") != lanes.train_queue("org/model-1")


@pytest.mark.parametrize("name", ["org/Model 1", "/home/x/modèle", "a" * 300])
def test_a_queue_name_is_plain_whatever_the_model_is_called(name: str) -> None:
    assert lanes.slug(name).replace("-", "").isalnum()
    assert len(lanes.slug(name)) < 50


def test_a_sampler_keeps_its_lane_and_many_samplers_use_all_lanes() -> None:
    queues = {lanes.bell_of(sample_op(f"s:{i}"), model="tiny", lanes=4).queue for i in range(50)}
    again = {lanes.bell_of(sample_op("s:1"), model="tiny", lanes=4).queue for _ in range(5)}
    assert queues == set(lanes.sample_queues("tiny", 4))
    assert len(again) == 1


def test_a_reward_bell_names_the_function() -> None:
    action = ScoreTexts(reward="numeric", texts=("a", "b"), contexts=({}, {}))
    bell = lanes.bell_of(RewardOp(id=OpId("o"), tenant=TenantId("t"), action=action), model="", lanes=2)
    assert bell.summary == "reward=numeric texts=2"
    assert bell.queue.startswith("reward.")


def test_bells_of_a_batch_name_it_and_its_groups() -> None:
    params = SamplingParams(max_tokens=5)
    rollout = RollOut(base_model="tiny", policy=None, number=7, num_samples=4, params=params, text="a")
    op = SampleOp(id=OpId("o"), tenant=TenantId("t"), sampler=SamplerId("b"), number=7, action=rollout)
    bell = lanes.bell_of(op, model="tiny", lanes=4)
    assert bell.summary == "batch=b group=7 samples=4 max_tokens=5" and bell.line == lanes.sample_line("tiny")
    ask = AskJudge(of=op.id, reward=0, base_model="tiny", policy=None, answers=2, params=params, text=("", "?"))
    asking = SampleOp(
        id=OpId("j"), tenant=TenantId("t"), sampler=SamplerId("b.judge"), number=7, action=ask, batch=BatchId("b")
    )
    assert lanes.bell_of(asking, model="tiny", lanes=4).summary == "batch=b of=o answers=2 max_tokens=5"
    group = ScoreGroup(of=OpId("o"), samples=4, rewards=(RewardPart(name="exact"), RewardPart(name="regex")))
    reward = RewardOp(id=OpId("w"), tenant=TenantId("t"), action=group, batch=BatchId("b"))
    bell = lanes.bell_of(reward, model="", lanes=4)
    assert bell.summary == "batch=b of=o rewards=exact,regex samples=4" and bell.line == lanes.REWARD_LINE
    queues = {
        lanes.bell_of(replace(reward, batch=BatchId(f"b{number}")), model="", lanes=4).queue for number in range(50)
    }
    assert queues == set(lanes.reward_queues(4)), "batches of a tenant are spread"
