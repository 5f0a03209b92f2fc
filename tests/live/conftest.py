"""A whole OpenRL on the tiny model for the tests of this folder, driven by the real SDK."""

import fcntl
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path

import tinker
from living import COOKBOOK_NAME, Server

import openrl

_ended: list[int] = []  #: how the session ended


def pytest_sessionfinish(exitstatus: int) -> None:
    _ended.append(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Threads of the SDK outlive the tests, and can abort Python while it ends, and the tests' verdict with it. So a
    run of live tests ends without that, once all is told."""
    if config.getoption("markexpr") == "live" and _ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_ended[-1])


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Shared by the tests that leave it as they found it; a killed process is restarted by its supervisor."""
    server = Server.start(tmp_path_factory.mktemp("openrl"), "--dtype", "float32")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Clients that a test left open go away with it, and not in the middle of something that minds."""
    yield
    gc.collect()


@pytest.fixture
def service(server: Server) -> tinker.ServiceClient:
    return tinker.ServiceClient(base_url=server.url, api_key=server.api_key)


@pytest.fixture
def client(server: Server) -> Iterator[openrl.Client]:
    with openrl.Client(base_url=server.url, api_key=server.api_key) as client:
        yield client


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """A real pretrained model, pulled once into the working copy, whoever else wants it."""
    cache = Path(__file__).parents[2] / ".cache" / "models"
    folder = cache / "smollm2-135m"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "config.json").exists():
            pull = [sys.executable, "-m", "openrl.cli.main", "models", "pull", "smollm2-135m", "--to", str(cache)]
            subprocess.run(pull, check=True)
    return folder


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Iterator[Server]:
    """On a model that has learned something, under the names that documents and the cookbook use."""
    names = f"smollm2-135m,{COOKBOOK_NAME}"
    server = Server.start(
        tmp_path_factory.mktemp("real"), "--no-flower", model=str(smollm2), OPENRL_MODEL_ALIASES=names
    )
    yield server
    server.stop()
