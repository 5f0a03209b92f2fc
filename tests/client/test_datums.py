import math
import sys

import numpy as np
import pytest

from openrl.client import Dropped, Group, Rollout, Timings, TinkerMissing, to_datums

NO_TIME = Timings(queued_seconds=0.0, sampled_seconds=0.0, scored_seconds=0.0)


def group(*rewards, index=0, prompt=(5, 6, 7), lost=0, tokens=(8, 9), logprobs=(-0.5, -0.25)):
    rollouts = tuple(
        Rollout(
            sample=sample,
            tokens=tokens,
            logprobs=logprobs,
            text="",
            stop_reason="stop",
            reward=reward,
            parts={},
            info={},
        )
        for sample, reward in enumerate(rewards)
    )
    dropped = tuple(Dropped(sample=len(rewards) + at, error="E", reason="r") for at in range(lost))
    return Group(
        index=index, id="", prompt_tokens=prompt, rollouts=rollouts, dropped=dropped, policy="toy", timings=NO_TIME
    )


def inputs(datum):
    return {name: tensor.tolist() for name, tensor in datum.loss_fn_inputs.items()}


def advantages(datums):
    return [inputs(datum)["advantages"][-1] for datum in datums]


def test_a_datum_lines_each_sampled_token_up_with_the_position_that_predicts_it():
    low, high = to_datums([group(0.0, 1.0)])
    assert low.model_input.to_ints() == high.model_input.to_ints() == [5, 6, 7, 8]
    assert inputs(high) == {
        "target_tokens": [6, 7, 8, 9],
        "logprobs": [0.0, 0.0, -0.5, -0.25],
        "advantages": [0.0, 0.0, 1.0, 1.0],
    }
    assert inputs(low)["advantages"] == [0.0, 0.0, -1.0, -1.0]
    kinds = {name: (tensor.to_numpy().dtype, tensor.shape) for name, tensor in high.loss_fn_inputs.items()}
    assert kinds == {
        "target_tokens": (np.dtype("int64"), [4]),
        "logprobs": (np.dtype("float32"), [4]),
        "advantages": (np.dtype("float32"), [4]),
    }


def test_a_prompt_of_one_token_has_no_position_of_its_own():
    datum, _ = to_datums([group(0.0, 1.0, prompt=(5,))])
    assert datum.model_input.to_ints() == [5, 8] and inputs(datum)["target_tokens"] == [8, 9]
    assert inputs(datum)["advantages"] == [-1.0, -1.0]


def test_advantages_are_worked_out_within_a_group():
    """Rewards 1, 2 and 6: mean 3, deviations -2, -1 and 3, variance 14/3."""
    deviation = math.sqrt(14 / 3)
    groups = [group(1.0, 2.0, 6.0), group(10.0, 20.0, 60.0, index=1)]
    expected = [-2 / deviation, -1 / deviation, 3 / deviation]
    assert advantages(to_datums(groups)) == pytest.approx(expected * 2)
    assert advantages(to_datums(groups, advantages="dr_grpo")) == pytest.approx([-2, -1, 3, -20, -10, 30])
    best = to_datums(groups, advantages=lambda rewards: [reward == max(rewards) for reward in rewards])
    assert advantages(best) == [0.0, 0.0, 1.0] * 2


def test_those_that_were_dropped_do_not_count():
    assert advantages(to_datums([group(0.0, 1.0, lost=2)])) == [-1.0, 1.0]
    assert to_datums([group(lost=4), group(0.5, lost=3)]) == []


@pytest.mark.parametrize("flat", [(0.6, 0.6, 0.6), (0.3, 0.1 + 0.2), (1e12, 1e12 + 1e-4)])
def test_a_group_without_variance_teaches_nothing(flat):
    for kind in ("grpo", "dr_grpo"):
        assert to_datums([group(*flat)], advantages=kind) == []
        kept = to_datums([group(*flat)], advantages=kind, keep_flat=True)
        assert advantages(kept) == [0.0] * len(flat)


def test_a_baseline_of_ones_own_teaches_of_groups_that_agree():
    assert advantages(to_datums([group(1.0)], advantages=lambda rewards: [r - 0.5 for r in rewards])) == [0.5]


def test_tokens_are_weighed():
    by_length = to_datums([group(0.0, 1.0)], weights=lambda rollout: 1 / len(rollout.tokens))
    assert inputs(by_length[1])["advantages"] == [0.0, 0.0, 0.5, 0.5]
    masked = to_datums([group(0.0, 1.0)], weights=lambda rollout: [0.0, 2.0])
    assert inputs(masked[0])["advantages"] == [0.0, 0.0, 0.0, -2.0]
    with pytest.raises(ValueError, match="3 factors for a rollout of 2 tokens"):
        to_datums([group(0.0, 1.0)], weights=lambda rollout: [1.0] * 3)


def test_a_rollout_without_tokens_counts_and_has_no_datum():
    empty = group(0.0, 1.0, tokens=(), logprobs=())
    mixed = Group(
        index=0,
        id="",
        prompt_tokens=(5,),
        rollouts=(*empty.rollouts[:1], *group(0.0, 1.0).rollouts[1:]),
        dropped=(),
        policy="toy",
        timings=NO_TIME,
    )
    assert advantages(to_datums([mixed])) == [1.0]


def test_what_cannot_be_an_advantage_is_an_error():
    with pytest.raises(ValueError, match="groups of 2 or more"):
        to_datums([group(1.0)])
    with pytest.raises(ValueError, match="'grop'; give"):
        to_datums([group(0.0, 1.0)], advantages="grop")
    for wrong in ([1.0], [1.0, math.nan]):
        with pytest.raises(ValueError, match="group 0: 2 finite advantages"):
            to_datums([group(0.0, 1.0)], advantages=lambda rewards, wrong=wrong: wrong)


def test_a_missing_sdk_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(TinkerMissing, match="pip install tinker"):
        to_datums([group(0.0, 1.0)])
