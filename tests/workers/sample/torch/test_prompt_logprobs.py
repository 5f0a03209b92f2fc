import numpy as np
import pytest
import torch

from openrl.domain.errors import FieldInvalid
from openrl.domain.tensor import DType
from workers.model.arrays import to_domain
from workers.sample.torch import prompt_logprobs

PROMPT = [int(token) for token in np.random.default_rng(1).integers(3, 97, 24)]
LENGTH = len(PROMPT)


@pytest.fixture
def expected(lab):
    """Log-probabilities [P, V] at temperature 1 after each prompt token."""
    return torch.log_softmax(lab.logits(lab.base(), PROMPT), -1)


def score(lab, **asked):
    return lab.run(lab.engine(), lab.ask(PROMPT, 1, temperature=0.5, **asked))[0]


@pytest.mark.parametrize("chunk", [1, 97 * 5, 1 << 23])
def test_prompt_logprobs_are_exact_whatever_the_chunk(lab, expected, monkeypatch, chunk):
    monkeypatch.setattr(prompt_logprobs, "CHUNK_LOGITS", chunk)
    got = lab.array(score(lab, prompt_logprobs=True).prompt_logprobs)
    assert np.isnan(got[0])
    assert got[1:] == pytest.approx(expected[range(LENGTH - 1), PROMPT[1:]].numpy(), abs=1e-4)


def test_only_the_last_n_are_scored(lab, expected):
    result = score(lab, prompt_logprobs=True, prompt_logprobs_last_n=5, topk_prompt_logprobs=2)
    got = lab.array(result.prompt_logprobs)
    assert np.isnan(got[:-5]).all()
    assert got[-5:] == pytest.approx(expected[range(LENGTH - 1), PROMPT[1:]].numpy()[-5:], abs=1e-4)
    assert (lab.array(result.top_prompt_logprobs.logprobs)[:-5] == np.float32(-99999.0)).all()
    assert (lab.array(result.top_prompt_logprobs.logprobs)[-5:] > -99).all()


def test_top_k_holds_the_likeliest_and_a_filler_at_the_first_token(lab, expected):
    top = score(lab, topk_prompt_logprobs=3).top_prompt_logprobs
    ids, values = lab.array(top.token_ids), lab.array(top.logprobs)
    assert ids.shape == values.shape == (LENGTH, 3)
    assert ids[0].tolist() == [0, 0, 0]
    assert values[0].tolist() == [-99999.0] * 3
    likeliest = expected[:-1].topk(3)
    assert ids[1:].tolist() == likeliest.indices.tolist()
    assert values[1:] == pytest.approx(likeliest.values.numpy(), abs=1e-4)


def test_chosen_targets_are_scored_where_asked(lab, expected):
    targets = torch.full((LENGTH - 1, 3), -1)
    targets[4, 0], targets[4, 2], targets[LENGTH - 2, 1] = 7, 0, 96
    got = score(lab, target_prompt_logprobs=to_domain(targets, DType.INT64)).target_prompt_logprobs
    assert (got.dtype, got.shape) == (DType.FLOAT32, (LENGTH - 1, 3))
    wanted = np.zeros((LENGTH - 1, 3), np.float32)
    wanted[4, 0], wanted[4, 2], wanted[LENGTH - 2, 1] = expected[4, 7], expected[4, 0], expected[LENGTH - 2, 96]
    assert lab.array(got) == pytest.approx(wanted, abs=1e-4)


def test_alternatives_are_drawn_at_the_requests_temperature_and_scored_at_one(lab, expected):
    tokens, values = score(lab, prompt_alternatives=400, seed=3).prompt_alternatives
    assert (tokens.dtype, tokens.shape, values.shape) == (DType.INT64, (LENGTH - 1, 400), (LENGTH - 1, 400))
    drawn = torch.from_numpy(lab.array(tokens).copy())
    assert lab.array(values) == pytest.approx(expected[:-1].gather(-1, drawn).numpy(), abs=1e-4)
    probs = torch.softmax(expected[:-1] / 0.5, -1)
    likeliest = probs.argmax(-1, keepdim=True)
    share, wanted = (drawn == likeliest).float().mean(-1), probs.gather(-1, likeliest)[:, 0]
    assert float((share - wanted).abs().max()) < 0.1


def test_alternatives_of_one_seed_repeat_and_differ_from_each_other(lab):
    first, second = (score(lab, prompt_alternatives=4, seed=3).prompt_alternatives[0] for _ in range(2))
    assert first == second
    assert len({tuple(column) for column in lab.array(first).T.tolist()}) == 4


def test_everything_can_be_asked_at_once_and_nothing_comes_unasked(lab):
    result = score(
        lab,
        prompt_logprobs=True,
        topk_prompt_logprobs=1,
        prompt_alternatives=1,
        target_prompt_logprobs=to_domain(torch.zeros((LENGTH - 1, 1), dtype=torch.int64), DType.INT64),
    )
    assert None not in (
        result.prompt_logprobs,
        result.top_prompt_logprobs,
        result.target_prompt_logprobs,
        result.prompt_alternatives,
    )
    bare = score(lab)
    assert bare.prompt_logprobs is bare.top_prompt_logprobs is bare.target_prompt_logprobs is None
    assert bare.prompt_alternatives is None


def test_prompts_are_scored_under_their_own_policy(lab):
    base = lab.base()
    engine = lab.engine(base)
    for number in range(2):
        engine.put(f"p{number}", *lab.adapter(base, number))
    requests = [
        lab.ask(PROMPT[:n], 1, policy=policy, prompt_logprobs=True) for policy in (None, "p0", "p1") for n in (24, 20)
    ]
    together = lab.run(engine, *requests)
    alone = [lab.run(engine, request)[0] for request in requests]
    for one, other in zip(together, alone, strict=True):
        assert lab.array(one.prompt_logprobs)[1:] == pytest.approx(lab.array(other.prompt_logprobs)[1:], abs=1e-4)
    assert len({float(lab.array(result.prompt_logprobs)[5]) for result in alone}) == 3


def test_a_prompt_of_one_token_has_nothing_to_score(lab):
    result = lab.run(
        lab.engine(), lab.ask([5], 1, prompt_logprobs=True, topk_prompt_logprobs=2, prompt_alternatives=2)
    )[0]
    assert np.isnan(lab.array(result.prompt_logprobs)).tolist() == [True]
    assert result.prompt_alternatives[0].shape == (0, 2)


@pytest.mark.parametrize("shape", [(LENGTH, 1), (LENGTH - 1,)])
def test_targets_of_the_wrong_shape_are_refused(lab, shape):
    targets = to_domain(torch.zeros(shape, dtype=torch.int64), DType.INT64)
    with pytest.raises(FieldInvalid, match="target_prompt_logprobs"):
        score(lab, target_prompt_logprobs=targets)


def test_targets_outside_of_the_vocabulary_are_refused(lab):
    targets = to_domain(torch.tensor([-1] * (LENGTH - 2) + [97])[:, None], DType.INT64)
    with pytest.raises(FieldInvalid, match=f"target_prompt_logprobs: token 97 at position {LENGTH - 2} is outside"):
        score(lab, target_prompt_logprobs=targets)
