import pickle
import subprocess
import sys

import httpx
import pytest

import openrl
from openrl.client import BatchFailed, KeyMissing, RequestRefused, Score, ServiceUnreachable, TinkerMissing, WorkFailed
from openrl.client.scores import scores_of


def test_the_client_needs_nothing_of_the_servers():
    servers = ("celery", "fastapi", "msgspec", "numpy", "pydantic", "redis", "sqlalchemy", "queues", "workers")
    block = f"import sys; sys.modules.update(dict.fromkeys({servers})); "
    code = block + "import openrl; openrl.Client; assert 'openrl.config' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_texts_are_scored(gateway, client):
    scores = client.score("length", ["a", "bcd"], contexts=[{"answer": 42}, {}], params={"strict": True, "mode": "x"})
    assert scores == [1.0, 3.0]
    sent = gateway.worker.seen[-1].action
    assert sent.contexts == ({"answer": "42"}, {})
    assert sent.params == {"strict": "true", "mode": "x"}
    assert client.score("length", []) == []


def test_scores_come_with_their_parts_where_there_are_any():
    result = {"values": [1, 0.5], "parts": [{"rows": 1.0}, {}], "info": [{}, {"error": "x"}]}
    assert scores_of(result) == [Score(1.0, {"rows": 1.0}), Score(0.5, {}, {"error": "x"})]
    assert scores_of({"values": [1], "parts": [], "info": []}) == scores_of({"values": [1]}) == [Score(1.0)]


def test_texts_are_scored_in_parts(client):
    assert client.score_in_parts("length", ["a", "bcd"]) == [Score(1.0), Score(3.0)]
    assert client.score_in_parts("length", []) == []


def test_each_call_is_a_new_request(gateway, client):
    before = len(gateway.worker.seen)
    client.score("length", ["a"])
    client.score("length", ["a"])
    assert len(gateway.worker.seen) == before + 2


def test_a_refusal_and_a_failure_are_told_apart(gateway, client):
    with pytest.raises(RequestRefused, match="contexts: has 1 entries for 2 texts") as refused:
        client.score("length", ["a", "b"], contexts=[{}])
    assert refused.value.status == 422

    def fail(op):
        raise ZeroDivisionError("in the reward function")

    gateway.worker.before = fail
    try:
        with pytest.raises(WorkFailed, match="in the reward function") as failed:
            client.score("length", ["a"])
    finally:
        gateway.worker.before = lambda op: None
    assert (failed.value.error, failed.value.category) == ("ZeroDivisionError", "server")


def test_address_and_key_come_from_the_environment(gateway, monkeypatch):
    for name in ("OPENRL_BASE_URL", "OPENRL_API_KEY", "TINKER_BASE_URL", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(KeyMissing, match="OPENRL_API_KEY"):
        openrl.Client()
    monkeypatch.setenv("TINKER_BASE_URL", gateway.url)
    monkeypatch.setenv("TINKER_API_KEY", gateway.key)
    with openrl.Client() as client:
        assert client.score("length", ["ab"]) == [2.0]


def test_a_restart_of_the_server_is_not_noticed(gateway):
    """Lost answers, refused connections and 5xx on the way; the text is scored once."""
    real = httpx.HTTPTransport()
    troubles = ["lost", "refused", "503"]

    class Shaky(httpx.BaseTransport):
        def handle_request(self, request):
            trouble = troubles.pop(0) if troubles else ""
            if trouble == "lost":
                real.handle_request(request).close()
                raise httpx.RemoteProtocolError("the connection ended", request=request)
            if trouble == "refused":
                raise httpx.ConnectError("refused", request=request)
            if trouble:
                return httpx.Response(int(trouble), request=request)
            return real.handle_request(request)

    before = len(gateway.worker.seen)
    with openrl.Client(gateway.url, gateway.key, transport=Shaky()) as client:
        assert client.score("length", ["abc"]) == [3.0]
    real.close()
    assert troubles == []
    assert len(gateway.worker.seen) == before + 1


def test_patience_has_an_end():
    nowhere = openrl.Client("http://127.0.0.1:9", "tml-x", patience_seconds=0.2)
    with nowhere, pytest.raises(ServiceUnreachable, match="did not answer"):
        nowhere.score("length", ["a"])


def test_errors_survive_pickling():
    for error in (
        RequestRefused(422, "x"),
        WorkFailed("E", "m", "user"),
        ServiceUnreachable("u", 1.0, "x"),
        KeyMissing(),
        BatchFailed("b", {"E": 2}),
        TinkerMissing(),
    ):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
