"""What is wrong is told by the name of its field, and never stops a run."""

import pytest


def test_a_refused_batch_has_used_its_turn_up(gateway, http):
    run = http.run()
    refused = http.forward_backward(http.batch(run, 1, loss="foo"))
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("loss_fn: 'foo' is not a loss; choose one of cross_entropy")
    assert http.result(http.step(run, 2).json()["request_id"]) == {"metrics": {"step": 1.0}}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("optim_step", {"adam_params": {"learning_rate": -1}}),
        ("optim_step", {"optimizer_params": {"type": "dimuon"}}),
        ("optim_step", {"adam_params": {}, "unheard": 1}),
        ("save_weights", {"path": "../x"}),
        ("save_weights_for_sampler", {}),
        ("save_weights_for_sampler", {"sampling_session_seq_id": 0, "kind": "inflight"}),
        ("save_weights_external", {"path": "x"}),
        ("load_weights", {"path": "x", "optimizer": False}),
        ("load_weights", {"path": "tinker://nobody/weights/x", "optimizer": False}),
        ("load_weights", {"path": 3}),
    ],
)
def test_a_refused_turn_of_any_kind_lets_the_run_go_on(http, path, fields):
    run = http.run()
    refused = http.call(path, model_id=run, seq_id=1, **fields)
    assert refused.status_code in (404, 422)
    assert ": " in refused.json()["detail"]
    http.result(http.step(run, 2).json()["request_id"])


def test_a_turn_that_comes_after_it_was_passed_over_is_refused(http):
    run = http.run()
    http.forward_backward(http.batch(run, 1, loss="foo"))
    late = http.forward_backward(http.batch(run, 1))
    assert (late.status_code, late.json()["detail"][:8]) == (422, "seq_id: ")


def test_turns_are_counted_from_one(http):
    refused = http.forward_backward(http.batch(http.run(), 0))
    assert (refused.status_code, refused.json()["detail"][:13]) == (422, "seq_id: is 0;")


def test_bytes_that_are_no_message_are_a_400_with_a_body(http):
    refused = http.forward_backward(b"\xff\xff")
    assert refused.status_code == 400
    assert refused.json()["detail"].startswith("request body: not a protobuf ForwardBackwardRequest")
    assert http.post("optim_step", content=b"{").json()["detail"].startswith("request body: Invalid JSON")


def test_an_unknown_model_is_refused_with_the_known_ones(http):
    fields = {"session_id": http.session(), "model_seq_id": 0, "base_model": "gpt-9", "lora_config": {"rank": 8}}
    refused = http.call("create_model", **fields)
    assert refused.status_code == 422
    assert refused.json()["detail"] == "base_model: 'gpt-9' is not served here; served models: toy"
    assert (
        http.call(
            "create_sampling_session", session_id=http.session(), sampling_session_seq_id=0, base_model="gpt-9"
        ).status_code
        == 422
    )


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({}, "base_model: is missing; send base_model, model_path, or both"),
        ({"model_path": "step-1"}, "path: 'step-1' is not of the form tinker://RUN/KIND/NAME"),
        ({"model_path": "tinker://nobody/weights/x"}, "path: no checkpoint 'tinker://nobody/weights/x'"),
    ],
)
def test_a_sampler_of_nothing_is_refused(http, fields, detail):
    refused = http.call("create_sampling_session", session_id=http.session(), sampling_session_seq_id=0, **fields)
    assert refused.status_code in (404, 422)
    assert refused.json()["detail"].startswith(detail)


def test_a_wrong_sample_is_refused(http):
    refused = http.sample(http.sampler(), top_p=0)
    assert (refused.status_code, refused.json()) == (422, {"detail": "sampling_params.top_p: must be greater than 0"})
