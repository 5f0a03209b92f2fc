import pytest

import openrl
from openrl.gateway.doubles import toy_gateway


@pytest.fixture(scope="package")
def gateway(tmp_path_factory):
    with toy_gateway(tmp_path_factory.mktemp("gateway")) as up:
        yield up


@pytest.fixture
def client(gateway):
    gateway.worker.before = lambda op: None
    with openrl.Client(gateway.url, gateway.key) as client:
        yield client
