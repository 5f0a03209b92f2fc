import numpy as np
import pytest
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import deserialize_forward_backward_output

from openrl.domain.datum import Loss
from openrl.domain.errors import BodyInvalid, FieldInvalid
from openrl.domain.outcome import BatchResult
from openrl.testing import TOY_CARD
from openrl.wire.arrays import array_of, tensor_of
from openrl.wire.batch import batch_output, read_request, to_forward_backward, turn_in

ROOM = 1_000_000


def datum(tokens=(1, 2, 3), **inputs):
    inputs = inputs or {"target_tokens": [2, 3, 4], "weights": [1.0, 0.5, 0.0]}
    return types.Datum(model_input=types.ModelInput.from_ints(list(tokens)), loss_fn_inputs=inputs)


def rl(**changes):
    inputs = {"target_tokens": [2, 3, 4], "logprobs": [-1.0, -1.0, -1.0], "advantages": [1.0, 1.0, -1.0]}
    return datum(**{key: value for key, value in (inputs | changes).items() if value is not None})


def request(data, loss="cross_entropy", config=None):
    body = types.ForwardBackwardInput(data=data, loss_fn=loss, loss_fn_config=config)
    return forward_backward_request_to_proto(
        types.ForwardBackwardRequest(forward_backward_input=body, model_id="s:train:0", seq_id=7)
    ).SerializeToString()


def action(*args, **kwargs):
    return to_forward_backward(read_request(request(*args, **kwargs)), TOY_CARD, ROOM)


def test_what_the_sdk_writes_arrives():
    done = action([datum()], "cross_entropy")
    (sent,) = done.data
    assert (done.loss, done.forward_only) == (Loss.CROSS_ENTROPY, False)
    assert array_of(sent.tokens).tolist() == [1, 2, 3]
    assert array_of(sent.inputs["target_tokens"]).tolist() == [2, 3, 4]
    assert array_of(sent.inputs["weights"]).tolist() == [1.0, 0.5, 0.0]


def test_loss_config_arrives():
    assert action([rl()], "ppo", {"clip_low_threshold": 0.7}).loss_config == {"clip_low_threshold": 0.7}


def test_the_numbers_only_map_counts_where_there_is_no_other():
    message = read_request(request([rl()], "ppo", {"clip_low_threshold": 0.7}))
    message.loss_fn_config_v2.clear()
    assert to_forward_backward(message, TOY_CARD, ROOM).loss_config == {"clip_low_threshold": 0.7}


@pytest.mark.parametrize(
    ("data", "loss", "config", "problem"),
    [
        ([], "cross_entropy", None, "data: is empty"),
        ([rl()], "gspo", None, "loss_fn: 'gspo' is not supported by this server; choose one of cross_entropy"),
        ([rl()], "stable_reinforce", None, "loss_fn: 'stable_reinforce' is not supported"),
        ([rl()], "custom", {"loss_id": "x"}, "loss_fn: 'custom' is not supported"),
        ([rl()], "ppo", {"beta": 1.0}, "loss_fn_config.beta: ppo has no such setting"),
        ([rl()], "ppo", {"clip_low_threshold": float("nan")}, "loss_fn_config.clip_low_threshold: is nan"),
        (
            [rl()],
            "ppo",
            {"clip_low_threshold": "0.8"},
            "loss_fn_config.clip_low_threshold: is '0.8'; it must be a number",
        ),
        ([datum((1, 100, 3))], "cross_entropy", None, "data[0].model_input: token 100 at position 1 is outside"),
        ([datum(), datum((1, -1, 3))], "cross_entropy", None, "data[1].model_input: token -1 at position 1 is outside"),
        ([datum(()), datum()], "cross_entropy", None, "data[0].model_input: has no tokens"),
        (
            [datum(range(65))],
            "cross_entropy",
            None,
            "data[0].model_input: 65 tokens are more than the model's context of 64",
        ),
        ([datum(target_tokens=[2, 3, 4])], "cross_entropy", None, "data[0].loss_fn_inputs.weights: is missing"),
        ([rl(advantages=None)], "ppo", None, "data[0].loss_fn_inputs.advantages: is missing"),
        (
            [rl(sequence_ratio_mask=[1.0, 1.0, 1.0])],
            "ppo",
            None,
            "data[0].loss_fn_inputs.sequence_ratio_mask: ppo takes only",
        ),
        ([rl(), rl(advantages=[1.0, 1.0])], "ppo", None, "data[1].loss_fn_inputs.advantages: shape is [2]"),
        (
            [rl(advantages=[1.0, float("nan"), 1.0])],
            "ppo",
            None,
            "data[0].loss_fn_inputs.advantages[1]: nan is not finite",
        ),
        (
            [rl(logprobs=[1.0, 0.0, float("-inf")])],
            "ppo",
            None,
            "data[0].loss_fn_inputs.logprobs[2]: -inf is not finite",
        ),
        (
            [rl(target_tokens=[2, 3, 100])],
            "ppo",
            None,
            "data[0].loss_fn_inputs.target_tokens: token 100 at position 2 is outside",
        ),
        (
            [rl(target_tokens=np.array([2.0, 3.0, 4.0]))],
            "ppo",
            None,
            "data[0].loss_fn_inputs.target_tokens: dtype is float32",
        ),
        (
            [rl(target_tokens=np.array([[2], [3], [4]]))],
            "ppo",
            None,
            "data[0].loss_fn_inputs.target_tokens: shape is [3, 1]",
        ),
    ],
)
def test_a_wrong_batch_is_refused_by_the_name_of_its_field(data, loss, config, problem):
    with pytest.raises(FieldInvalid) as caught:
        action(data, loss, config)
    assert str(caught.value).startswith(problem)


def test_an_unknown_loss_is_never_another_one():
    message = read_request(request([datum()]))
    message.loss_fn = "foo"
    with pytest.raises(
        FieldInvalid, match="loss_fn: 'foo' is not a loss; choose one of cross_entropy, importance_samp"
    ):
        to_forward_backward(message, TOY_CARD, ROOM)


def test_images_are_refused_by_name():
    message = read_request(request([datum()]))
    message.data[0].model_input.add().image.data = b"png"
    with pytest.raises(FieldInvalid, match=r"data\[0\].model_input.chunks\[1\]: image chunks are not supported"):
        to_forward_backward(message, TOY_CARD, ROOM)


def test_bytes_that_are_no_message_are_refused():
    with pytest.raises(BodyInvalid, match="not a protobuf ForwardBackwardRequest"):
        read_request(b"\xff\xff\xff")


def test_the_turn_is_found_in_the_first_bytes():
    body = request([datum()] * 10)
    assert turn_in(body[:40]) == ("s:train:0", 7)
    for start in (b"", body[:5], b"\xff" * 40, b"\x0a\xff\xff\xff"):
        assert turn_in(start) is None


def test_results_come_back_in_order_with_their_shapes():
    arrays = [np.ones(2), np.ones((2, 3)), np.zeros((1, 3)), np.ones(4), np.zeros(0)]
    result = BatchResult(logprobs=tuple(tensor_of(a.astype("<f4")) for a in arrays), metrics={"loss:sum": float("nan")})
    read = deserialize_forward_backward_output(batch_output(result))
    assert [each["logprobs"].to_numpy().tolist() for each in read.loss_fn_outputs] == [a.tolist() for a in arrays]
    assert np.isnan(read.metrics["loss:sum"])
