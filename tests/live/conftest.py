"""A whole OpenRL on the tiny model for the tests of this folder, driven by the real SDK."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path

import tinker
from living import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Shared by the tests that leave it as they found it; a killed process is restarted by its supervisor."""
    server = Server.start(tmp_path_factory.mktemp("openrl"), "--dtype", "float32")
    yield server
    server.stop()


@pytest.fixture
def service(server: Server) -> tinker.ServiceClient:
    return tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
