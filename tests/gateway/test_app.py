import subprocess
import sys

import pytest

from openrl.config import Settings
from openrl.domain.errors import SettingInvalid
from openrl.gateway.services import open_services


def test_the_gateway_is_imported_without_torch():
    block = "import sys; sys.modules.update(torch=None, transformers=None, workers=None); "
    code = block + "import openrl.gateway.app; assert 'openrl.client' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_a_gateway_of_its_own_needs_to_be_told_its_broker(tmp_path):
    with (
        pytest.raises(SettingInvalid, match="OPENRL_REDIS_URL: is not set"),
        open_services(Settings(data_dir=tmp_path)),
    ):
        pass


def test_an_endpoint_that_is_not_there_is_named(http):
    response = http.post("/sessions/search", json={})
    assert response.status_code in (404, 405)
    assert response.json()["detail"].startswith("POST /api/v1/sessions/search: ")


def test_a_bug_is_a_500_with_a_body(gateway, http, monkeypatch):
    monkeypatch.setattr(type(gateway.services.ledger), "read", lambda self, op_id: 1 / 0)
    response = http.call("retrieve_future", request_id="x")
    assert (response.status_code, response.json()["detail"]) == (
        500,
        "internal error (ZeroDivisionError); the server's log has more",
    )
