import logging

import pytest

from openrl.domain.errors import NoWorker
from openrl.gateway.services import Services


def test_telemetry_is_taken_and_its_keys_are_never_logged(http, caplog):
    caplog.set_level(logging.DEBUG)
    event = {"event": "GENERIC_EVENT", "event_data": {"headers": {"X-API-Key": "tml-secret"}}, "new": 1}
    assert http.done("telemetry", events=[event], platform="x") == {"status": "accepted"}
    assert "tml-secret" not in caplog.text


def test_models_are_listed_under_all_their_names(http):
    models = http.get("get_server_capabilities").json()["supported_models"]
    assert [model["model_name"] for model in models] == ["toy", "openrl/toy"]
    assert models[0] == {"model_name": "toy", "max_context_length": 64, "trainable": True, "sampleable": True}


def test_before_the_first_worker_is_up_the_client_is_asked_to_wait(gateway, http, monkeypatch):
    monkeypatch.setattr(Services, "cards", lambda self: [])
    fields = {"session_id": http.session(), "model_seq_id": 0, "base_model": "toy", "lora_config": {"rank": 8}}
    response = http.call("create_model", **fields)
    assert (response.status_code, response.json()["detail"]) == (429, str(NoWorker("toy")))


@pytest.mark.parametrize("path", ["client/config", "client/dynamic_config"])
def test_the_client_is_told_how_to_behave(http, path):
    assert http.done(path, sdk_version="0.38.0")


def test_chunks_stay_below_what_a_body_may_hold(http):
    assert http.done("client/config", sdk_version="0.38.0")["fwdbwd_max_chunk_bytes_count"] == 1_000_000
