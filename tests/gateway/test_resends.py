"""The SDK sends again whatever was not answered; it must not happen twice."""


def test_a_resent_turn_is_the_same_request(gateway, http):
    run = http.run()
    first, second = (http.forward_backward(http.batch(run, 1)).json() for _ in range(2))
    assert first == second
    http.result(http.step(run, 2).json()["request_id"])
    assert http.forward_backward(http.batch(run, 1)).json() == first
    assert [op.turn for op in gateway.worker.seen if getattr(op, "run", None) == run] == [0, 1, 2]


def test_a_resent_model_is_the_same_run(http):
    session = http.session()
    fields = {"session_id": session, "model_seq_id": 0, "base_model": "toy", "lora_config": {"rank": 8}}
    assert http.done("create_model", **fields) == http.done("create_model", **fields)
    assert http.get(f"sessions/{session}").json()["training_run_ids"] == [f"{session}:train:0"]


def test_a_resent_sample_keeps_its_sequences(gateway, http):
    sampler = http.sampler()
    first, second = (http.sample(sampler).json() for _ in range(2))
    assert first == second
    assert len(set(first["sample_sequence_ids"])) == 1
    assert http.sample(sampler, number=1).json()["request_id"] != first["request_id"]


def test_a_resent_ephemeral_save_names_the_first_sampler(http):
    session = http.session()
    run = http.run(session)
    save = {"model_id": run, "seq_id": 1, "kind": "snapshot"}
    first = http.done("save_weights_for_sampler", **save, sampling_session_seq_id=5)
    again = http.done("save_weights_for_sampler", **save, sampling_session_seq_id=6)
    assert first == again
    result = http.result(again["request_id"])
    assert result["sampling_session_id"] == f"{session}:sample:5"
    for number in (5, 6):  # both mean the same weights
        assert http.sample(f"{session}:sample:{number}").status_code == 200


def test_turns_may_come_in_any_order(gateway, http):
    run = http.run()
    last, middle, first = (http.forward_backward(http.batch(run, turn)).json()["request_id"] for turn in (3, 2, 1))
    http.result(http.step(run, 4).json()["request_id"])
    assert [op.id for op in gateway.worker.seen if getattr(op, "run", None) == run][1:4] == [first, middle, last]
