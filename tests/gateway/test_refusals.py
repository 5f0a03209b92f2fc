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


def test_a_message_that_breaks_off_has_used_its_turn_up(http):
    run = http.run()
    assert http.forward_backward(http.batch(run, 1)[:-3]).status_code == 400
    http.result(http.step(run, 2).json()["request_id"])


@pytest.mark.parametrize("path", ["optim_step", "save_weights", "save_weights_external", "load_weights"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"model_id": "\\ud800", "seq_id": 1}',
        b'{"model_id": "m", "seq_id": 1, "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ],
)
def test_json_that_no_client_writes_is_refused_and_no_fault_of_ours(http, path, body):
    assert http.post(path, content=body).status_code in (400, 422)


def test_a_page_beyond_all_numbers_is_refused(http):
    for path in ("sessions", "training_runs", "checkpoints"):
        answer = http.get(path, params={"offset": 2**63})
        assert (answer.status_code, answer.json()["detail"][:8]) == (422, "offset: ")


def test_an_empty_checkpoint_name_is_refused_at_once(http):
    refused = http.call("save_weights_for_sampler", model_id=http.run(), seq_id=1, path="")
    assert (refused.status_code, refused.json()["detail"][:8]) == (422, "path: ''")


def test_a_number_in_use_is_not_silently_another_run(http):
    session = http.session()
    http.run(session, 0)
    fields = {"session_id": session, "model_seq_id": 0, "base_model": "toy", "lora_config": {"rank": 4}}
    refused = http.call("create_model", **fields)
    assert (refused.status_code, refused.json()["detail"][:14]) == (422, "model_seq_id: ")


def test_a_number_in_use_is_not_silently_another_sampler(http):
    session = http.session()
    run = http.run(session)
    save = {"model_id": run, "kind": "snapshot", "sampling_session_seq_id": 3}
    http.result(http.done("save_weights_for_sampler", **save, seq_id=1)["request_id"])
    refused = [
        http.call("save_weights_for_sampler", **save, seq_id=2),
        http.call("create_sampling_session", session_id=session, sampling_session_seq_id=3, model_path=_saved(http, run)),
    ]
    for each in refused:
        assert (each.status_code, each.json()["detail"][:25]) == (422, "sampling_session_seq_id: ")


def _saved(http, run):
    return http.result(http.done("save_weights", model_id=run, seq_id=3, path="x")["request_id"])["path"]
