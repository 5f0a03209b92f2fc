import json

import numpy as np
import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import DepotKey, SamplerId, SessionId, TenantId
from openrl.domain.policy import Sampler
from openrl.testing import TOY_CARD
from openrl.wire.arrays import array_of
from openrl.wire.base import read_json
from openrl.wire.sampling import SampleRequest, to_sample

SAMPLER = Sampler(
    id=SamplerId("s:sample:0"),
    tenant=TenantId("t"),
    session=SessionId("s"),
    base_model="toy",
    requested_model="toy",
    policy=DepotKey("policies/1"),
)


def body(tokens=(1, 2, 3), params=None, **changes):
    fields = {
        "sampling_session_id": "s:sample:0",
        "seq_id": 0,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": list(tokens)}]},
        "sampling_params": {"max_tokens": 4} | (params or {}),
    }
    return json.dumps(fields | changes).encode()


def sample(*args, **kwargs):
    return to_sample(read_json(SampleRequest, body(*args, **kwargs)), SAMPLER, TOY_CARD, 1_000_000)


def test_everything_asked_for_arrives():
    asked = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 2**63 - 1, "stop": ["a", "b"]}
    action = sample(params=asked, num_samples=3, prompt_logprobs=True, prompt_logprobs_last_n=2, topk_sample_logprobs=4)
    assert (action.base_model, action.policy, action.num_samples) == ("toy", "policies/1", 3)
    assert array_of(action.prompt).tolist() == [1, 2, 3]
    assert (action.params.temperature, action.params.top_p, action.params.top_k) == (0.5, 0.9, 5)
    assert (action.params.seed, action.params.max_tokens) == (2**63 - 1, 4)
    assert (action.prompt_logprobs, action.prompt_logprobs_last_n, action.topk_sample_logprobs) == (True, 2, 4)


@pytest.mark.parametrize(
    ("stop", "strings", "tokens", "at_eos"),
    [
        (None, (), (), True),
        ([], (), (), False),
        ("\n", ("\n",), (), True),
        (["a", "b"], ("a", "b"), (), True),
        ([7, 8], (), (7, 8), True),
    ],
)
def test_stops_are_told_apart_by_their_elements(stop, strings, tokens, at_eos):
    params = sample(params={} if stop is None else {"stop": stop}).params
    assert (params.stop_strings, params.stop_tokens, params.stop_at_eos) == (strings, tokens, at_eos)


def test_without_max_tokens_the_context_is_filled():
    assert sample(params={"max_tokens": None}).params.max_tokens == TOY_CARD.context_length - 3


def test_no_samples_at_all_may_be_asked_for():
    assert sample(num_samples=0).num_samples == 0


@pytest.mark.parametrize(
    ("kwargs", "problem"),
    [
        ({"params": {"max_tokens": 0}}, "sampling_params.max_tokens: must be greater than or equal to 1"),
        (
            {"params": {"max_tokens": 62}},
            "sampling_params.max_tokens: 62 after a prompt of 3 is more than the context of 64; ask for at most 61",
        ),
        ({"params": {"temperature": -0.1}}, "sampling_params.temperature: must be greater than or equal to 0"),
        ({"params": {"temperature": float("nan")}}, "sampling_params.temperature: must be a finite number"),
        ({"params": {"temperature": float("inf")}}, "sampling_params.temperature: must be a finite number"),
        ({"params": {"temperature": 1e-40}}, "sampling_params.temperature: is 1e-40; send 0 for the likeliest token"),
        ({"params": {"top_p": 0}}, "sampling_params.top_p: must be greater than 0"),
        ({"params": {"top_p": 1.01}}, "sampling_params.top_p: must be less than or equal to 1"),
        ({"params": {"top_k": 0}}, "sampling_params.top_k: is 0; it must be -1 (keep all) or at least 1"),
        ({"params": {"top_k": -2}}, "sampling_params.top_k: must be greater than or equal to -1"),
        ({"params": {"seed": -1}}, "sampling_params.seed: must be greater than or equal to 0"),
        ({"params": {"seed": 2**63}}, "sampling_params.seed: must be less than or equal to"),
        ({"params": {"stop": 3}}, "sampling_params.stop: must be a string, a list of strings or a list of token ids"),
        ({"params": {"stop": ["a", 1]}}, "sampling_params.stop: must hold only strings"),
        ({"params": {"stop": [""]}}, "sampling_params.stop: must hold only strings of 1 to"),
        ({"params": {"stop": [100]}}, "sampling_params.stop: token 100 is outside the vocabulary (0..99)"),
        ({"params": {"min_p": 0.1}}, "sampling_params.min_p: is not a field of this request"),
        ({"tokens": ()}, "prompt: has no tokens"),
        ({"tokens": (1, 100)}, "prompt: token 100 at position 1 is outside the vocabulary (0..99)"),
        ({"tokens": (-1,)}, "prompt: token -1 at position 0 is outside the vocabulary"),
        ({"tokens": (2**40,)}, "prompt.chunks[0].tokens[0]: must be less than or equal to"),
        ({"tokens": range(64)}, "prompt: 64 tokens leave no room to sample in a context of 64"),
        ({"tokens": range(65)}, "prompt: 65 tokens are more than the model's context of 64"),
        (
            {"prompt": {"chunks": [{"type": "image", "data": "aGk=", "format": "png"}]}},
            "prompt.chunks[0]: image chunks are not supported",
        ),
        ({"num_samples": -1}, "num_samples: must be greater than or equal to 0"),
        ({"num_samples": 1025}, "num_samples: must be less than or equal to 1024"),
        ({"prompt_logprobs_last_n": 1}, "prompt_logprobs_last_n: needs prompt_logprobs=true"),
        (
            {"prompt_logprobs": True, "prompt_logprobs_last_n": 3},
            "prompt_logprobs_last_n: is 3; this prompt allows 1..2",
        ),
        ({"topk_prompt_logprobs": 101}, "topk_prompt_logprobs: is 101; the vocabulary has 100 tokens"),
        ({"record_stability_info": True}, "record_stability_info: is not supported"),
        ({"seq_id": -1}, "seq_id: must be greater than or equal to 0"),
    ],
)
def test_a_wrong_request_is_refused_by_the_name_of_its_field(kwargs, problem):
    with pytest.raises(FieldInvalid) as caught:
        sample(**kwargs)
    assert str(caught.value).startswith(problem)


def targets(**fields):
    return sample(target_prompt_logprobs={"dtype": "int64", "shape": [2, 2]} | fields).target_prompt_logprobs


def test_target_tokens_are_taken_dense_and_sparse():
    sparse = targets(data=[5, 7], sparse_crow_indices=[0, 1, 2], sparse_col_indices=[0, 1])
    assert array_of(sparse).tolist() == [[5, -1], [-1, 7]]
    assert array_of(targets(data=[5, -1, -1, 7])).tolist() == [[5, -1], [-1, 7]]
    assert array_of(sparse).dtype == np.int64


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"data": [1, 2, 3]}, "target_prompt_logprobs.shape: is [2, 2] but 3 values were sent"),
        ({"data": [1, 2, 3, 100]}, "target_prompt_logprobs: token 100 at position 3 is outside"),
        ({"data": [1], "shape": [1, 1]}, "target_prompt_logprobs.shape: is [1, 1]; it must be [2, K]"),
        ({"data": [], "shape": [2, 10**12]}, "target_prompt_logprobs.shape: is [2, 1000000000000]; it must be [2, K]"),
        ({"data": [1], "shape": None}, "target_prompt_logprobs.shape: is []"),
        ({"data": [1], "sparse_crow_indices": [0, 1, 1]}, "target_prompt_logprobs: send sparse_crow_indices and"),
        ({"data": [1.5, 1, 1, 1]}, "target_prompt_logprobs.data[0]: must be a valid integer"),
    ],
)
def test_wrong_target_tokens_are_refused(fields, problem):
    with pytest.raises(FieldInvalid) as caught:
        targets(**fields)
    assert str(caught.value).startswith(problem)
