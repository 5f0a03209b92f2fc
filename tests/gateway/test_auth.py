import httpx


def test_health_needs_no_key(gateway):
    response = httpx.get(f"{gateway.url}/api/v1/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_everything_else_does(gateway):
    for path in ("/api/v1/client/config", "/api/v1/nothing", "/openrl/v1/score", "/"):
        response = httpx.post(gateway.url + path, json={})
        assert response.status_code == 401
        assert response.json()["detail"].startswith("X-API-Key: is missing")


def test_an_unknown_key_is_told_so(gateway):
    response = httpx.post(f"{gateway.url}/api/v1/client/config", json={}, headers={"x-api-key": "tml-wrong"})
    assert (response.status_code, response.json()["detail"][:23]) == (401, "X-API-Key: unknown key;")


def test_keys_are_looked_up_once_in_a_while(gateway, http, monkeypatch):
    http.done("client/config", sdk_version="0")
    monkeypatch.setattr(type(gateway.services.catalog), "tenant_of_key", lambda self, secret: 1 / 0)
    http.done("client/config", sdk_version="0")
