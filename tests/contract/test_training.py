import time
from dataclasses import replace

import numpy as np
import pytest
import tinker
from tinker import types

import openrl
from openrl.config import Gateway
from openrl.domain.errors import DatumTooLarge, FieldInvalid
from openrl.domain.op import ForwardBackward, OptimStep
from openrl.gateway.doubles import toy_gateway
from openrl.testing import toy_logprobs

ADAM = types.AdamParams(learning_rate=1e-3)


def actions(gateway, training):
    return [op.action for op in gateway.worker.seen if getattr(op, "run", None) == training.get_info().model_id]


def test_a_new_run_is_described_at_once(service):
    training = service.create_lora_training_client("openrl/toy", rank=16).result()
    info = training.get_info()
    session, word, number = info.model_id.split(":")
    assert (word, bool(session), number.isdecimal()) == ("train", True, True)
    assert (info.model_data.model_name, info.model_data.tokenizer_id, info.lora_rank) == ("openrl/toy", "toy", 16)


def test_results_come_in_the_order_of_the_data(training, datum):
    data = [datum(targets=(n, n, n)) for n in range(5)]
    output = training.forward_backward(data, "cross_entropy").result()
    for n, each in enumerate(output.loss_fn_outputs):
        assert np.allclose(each["logprobs"].to_numpy(), toy_logprobs(np.full(3, n)))
    assert output.metrics["loss:sum"] == pytest.approx(3 * (0.1 + 0.2 + 0.3 + 0.4 + 0.5))


def test_small_chunks_come_in_any_order_and_add_up(tmp_path, connect, datum):
    with toy_gateway(tmp_path, client_config={"fwdbwd_max_chunk_len": 2}) as gateway, connect(gateway) as service:
        training = service.create_lora_training_client("toy", rank=8).result()
        output = training.forward_backward([datum(targets=(n, n, n)) for n in range(5)], "cross_entropy").result()
        training.optim_step(ADAM).result()
        assert [len(each.data) for each in actions(gateway, training) if isinstance(each, ForwardBackward)] == [2, 2, 1]
        assert isinstance(actions(gateway, training)[-1], OptimStep)
    assert output.metrics["loss:sum"] == pytest.approx(4.5)
    assert [float(each["logprobs"].to_numpy()[0]) for each in output.loss_fn_outputs] == pytest.approx(
        [-0.1, -0.2, -0.3, -0.4, -0.5]
    )


def test_an_answer_that_is_lost_does_no_harm(tmp_path, connect, datum):
    """The gateway has recorded the request, and its answer never arrives."""
    lost = []

    def losing(app):
        async def wrapped(scope, receive, send):
            path = scope.get("path", "")
            if path in ("/api/v1/forward_backward", "/api/v1/save_weights_for_sampler") and lost.count(path) < 2:
                lost.append(path)

                async def nowhere(message):
                    pass

                await app(scope, receive, nowhere)
                await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after-ms", b"20")]})
                return await send({"type": "http.response.body", "body": b"{}"})
            return await app(scope, receive, send)

        return wrapped

    with toy_gateway(tmp_path, wrap=losing) as gateway, connect(gateway) as service:
        training = service.create_lora_training_client("toy", rank=8).result()
        training.forward_backward([datum()], "cross_entropy").result()
        sampler = training.save_weights_and_get_sampling_client().result()
        prompt = types.ModelInput.from_ints([5])
        sampler.sample(prompt, 1, types.SamplingParams(max_tokens=2)).result()
        assert len(lost) == 4
        assert [each.kind for each in actions(gateway, training)] == ["create_run", "forward_backward", "save_policy"]


def test_a_wrong_loss_is_told_and_the_run_goes_on(training, datum):
    with pytest.raises(tinker.UnprocessableEntityError, match="loss_fn: 'foo' is not a loss"):
        training.forward_backward([datum()], "foo").result()
    assert training.optim_step(ADAM).result().metrics == {"step": 1.0}


def test_a_failed_op_is_told_once_and_whose_fault_it_is(gateway, training, datum):
    def fail(op):
        raise FieldInvalid("data[0]", "is wrong") if isinstance(op.action, ForwardBackward) else ValueError("a bug")

    gateway.worker.before = fail
    try:
        with pytest.raises(tinker.RequestFailedError, match="is wrong") as caught:
            training.forward_backward([datum()], "cross_entropy").result()
        assert caught.value.category == "user"
        with pytest.raises(tinker.RequestFailedError, match="a bug") as caught:
            training.optim_step(ADAM).result()
        assert caught.value.category == "server"
    finally:
        gateway.worker.before = lambda op: None


def test_a_datum_that_memory_cannot_hold_is_a_bad_request_and_the_run_goes_on(gateway, training, datum):
    def fail(op):
        if isinstance(op.action, ForwardBackward):
            raise DatumTooLarge(1, 8_000, 90_000_000_000, 12_000_000_000)

    gateway.worker.before = fail
    try:
        with pytest.raises(tinker.RequestFailedError, match=r"data\[1\]: its 8000 tokens need 90 GB") as caught:
            training.forward_backward([datum(), datum()], "cross_entropy").result()
        assert caught.value.category == "user"
    finally:
        gateway.worker.before = lambda op: None
    assert training.forward_backward([datum()], "cross_entropy").result()


def test_forward_only_is_told_apart(gateway, training, datum):
    training.forward([datum()], "cross_entropy").result()
    training.forward_backward([datum()], "cross_entropy").result()
    assert [each.forward_only for each in actions(gateway, training)[1:]] == [True, False]


def test_a_loss_of_ones_own_sends_its_gradient(gateway, training, datum):
    def squares(data, logprobs):
        return sum((each**2).sum() for each in logprobs), {"mine": 1.0}

    output = training.forward_backward_custom([datum()], squares).result()
    sent = actions(gateway, training)[-1]
    expected = toy_logprobs(np.array([2, 3, 4]))
    assert np.allclose(np.frombuffer(sent.data[0].inputs["weights"].data, "<f4"), -2 * expected)
    assert output.metrics["loss:sum"] == pytest.approx(float((expected**2).sum()))


def test_an_op_that_takes_longer_than_a_poll_is_waited_for(gateway, training, datum):
    gateway.worker.before = lambda op: time.sleep(1.3)
    try:
        training.forward_backward([datum()], "cross_entropy").result()
    finally:
        gateway.worker.before = lambda op: None


def test_a_big_compressed_datum_is_taken(tmp_path, connect):
    """20 MB in one datum; a chunk is never split below that."""
    width = 10_000
    targets = np.zeros((64, width), dtype=np.int64)
    weights = np.random.default_rng(0).random((64, width), dtype=np.float32)
    inputs = {"target_tokens": types.TensorData.from_numpy(targets), "weights": types.TensorData.from_numpy(weights)}
    datum = types.Datum(model_input=types.ModelInput.from_ints(list(range(64))), loss_fn_inputs=inputs)
    limits = Gateway(poll_seconds=5.0, max_body_mb=64)
    config = {"proto_compress_fwdbwd": True}
    with toy_gateway(tmp_path, gateway=limits, client_config=config) as gateway, connect(gateway) as service:
        training = service.create_lora_training_client("toy", rank=8).result()
        output = training.forward_backward([datum] * 3, "cross_entropy").result()
    assert [each["logprobs"].shape for each in output.loss_fn_outputs] == [[64, width]] * 3
    assert output.metrics["loss:sum"] == pytest.approx(0.3 * float(weights.sum()), rel=1e-3)


def test_sparse_and_dense_targets_are_the_same(gateway, training):
    import torch

    dense = torch.zeros((4, 50), dtype=torch.int64)
    dense[:, 0] = torch.tensor([5, 6, 7, 8])
    weights = torch.zeros((4, 50))
    weights[:, 0] = 1.0
    losses = []
    for make in (types.TensorData.from_torch, types.TensorData.from_torch_sparse):
        inputs = {"target_tokens": make(dense), "weights": make(weights)}
        datum = types.Datum(model_input=types.ModelInput.from_ints([1, 2, 3, 4]), loss_fn_inputs=inputs)
        losses.append(training.forward_backward([datum], "cross_entropy").result().metrics["loss:sum"])
    assert losses[0] == pytest.approx(0.6 + 0.7 + 0.8 + 0.9)
    assert losses[0] == losses[1]


def test_a_number_that_is_none_is_refused_where_it_stands(training, datum):
    with pytest.raises(
        tinker.UnprocessableEntityError, match=r"data\[0\]\.loss_fn_inputs\.weights\[1\]: nan is not finite"
    ):
        training.forward_backward([datum(weights=(1.0, float("nan"), 1.0))], "cross_entropy").result()
    with pytest.raises(tinker.UnprocessableEntityError, match=r"adam_params\.learning_rate: must be a valid number"):
        training.optim_step(types.AdamParams(learning_rate=float("nan"))).result()


def test_a_client_told_to_send_the_header_trains_all_weights(gateway, datum):
    with tinker.ServiceClient(
        base_url=gateway.url, api_key=gateway.key, default_headers_overrides=openrl.FULL_RUN_HEADERS
    ) as service:
        training = service.create_lora_training_client("toy").result()
        info = training.get_info()
        assert (info.is_lora, info.lora_rank, info.model_data.model_name) == (False, None, "toy")
        training.forward_backward([datum()], "cross_entropy").result()


def test_metrics_of_chunks_are_put_together_as_their_names_say(tmp_path, connect, datum):
    told = [
        {"loss:sum": 2.0, "pack_share:mean": 0.5, "queue_seconds:max": 0.25, "device_seconds:sum": 0.75},
        {"loss:sum": 1.0, "pack_share:mean": 0.2, "queue_seconds:max": 1.5, "device_seconds:sum": 0.25},
    ]
    with toy_gateway(tmp_path, client_config={"fwdbwd_max_chunk_len": 2}) as gateway, connect(gateway) as service:
        answer = gateway.worker.answer

        def answer_as_told(op):
            result = answer(op)
            if isinstance(op.action, ForwardBackward):
                return replace(result, metrics=told[len(op.action.data) == 1])
            return replace(result, metrics={"grad_norm": 1.5}) if isinstance(op.action, OptimStep) else result

        gateway.worker.answer = answer_as_told
        training = service.create_lora_training_client("toy", rank=8).result()
        metrics = training.forward_backward([datum()] * 3, "cross_entropy").result().metrics
        stepped = training.optim_step(ADAM).result()
    assert metrics["loss:sum"] == 3.0 and metrics["device_seconds:sum"] == 1.0
    assert metrics["pack_share:mean"] == pytest.approx((2 * 0.5 + 1 * 0.2) / 3), "weighted by datums"
    assert metrics["queue_seconds:max"] == 1.5
    assert stepped.metrics == {"grad_norm": 1.5}, "an optimizer step is one op: its metrics need no colon"
