"""Another tenant's things look as if they were not there."""


def test_nothing_of_another_tenant_is_found(http, stranger):
    session = http.session()
    run = http.run(session)
    sampler = http.sampler(session)
    saved = http.done("save_weights", model_id=run, seq_id=1, path="a")["request_id"]
    path = http.result(saved)["path"]
    mine = stranger.session()
    refused = [
        stranger.get(f"sessions/{session}"),
        stranger.call("session_heartbeat", session_id=session),
        stranger.call(f"sessions/{session}/finish", reason={"type": "success"}),
        stranger.call("create_model", session_id=session, model_seq_id=9, base_model="toy", lora_config={"rank": 8}),
        stranger.call("get_info", model_id=run),
        stranger.call("weights_info", tinker_path=path),
        stranger.forward_backward(http.batch(run, 2)),
        stranger.step(run, 2),
        stranger.call("optim_step", model_id=run, seq_id=2, adam_params={"learning_rate": -1}),
        stranger.call("save_weights", model_id=run, seq_id=2, path="b"),
        stranger.call("save_weights_for_sampler", model_id=run, seq_id=2, sampling_session_seq_id=3),
        stranger.call("load_weights", model_id=run, seq_id=2, path=path, optimizer=True),
        stranger.call("load_weights", session_id=mine, model_seq_id=0, path=path, optimizer=True),
        stranger.call("create_sampling_session", session_id=mine, sampling_session_seq_id=0, model_path=path),
        stranger.call("create_sampling_session", session_id=session, sampling_session_seq_id=0, base_model="toy"),
        stranger.get(f"samplers/{sampler}"),
        stranger.sample(sampler),
        stranger.call("retrieve_future", request_id=saved),
        stranger.call("cancel_future", request_id=saved),
        stranger.get(f"training_runs/{run}"),
        stranger.get(f"training_runs/{run}/checkpoints"),
        stranger.put(f"training_runs/{run}/checkpoints/weights/a/ttl", json={"ttl_seconds": 60}),
        stranger.delete(f"training_runs/{run}/checkpoints/weights/a"),
    ]
    assert [response.status_code for response in refused] == [404] * len(refused)
    assert stranger.get("checkpoints").json()["checkpoints"] == []
    assert stranger.get("training_runs").json()["training_runs"] == []
    http.result(http.step(run, 2).json()["request_id"])  # and the strangers have not passed over a turn
