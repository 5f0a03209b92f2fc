"""The real SDK, as it is installed, against a gateway on doubles."""

import pytest
import tinker
from tinker import types

from openrl.config import Gateway
from openrl.gateway.doubles import toy_gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with toy_gateway(tmp_path_factory.mktemp("gateway"), gateway=Gateway(poll_seconds=0.5, max_body_mb=64)) as up:
        yield up


@pytest.fixture(scope="module")
def service(gateway):
    with connected(gateway) as client:
        yield client


@pytest.fixture
def training(service):
    return service.create_lora_training_client("toy", rank=8).result()


@pytest.fixture(scope="session")
def connect():
    return connected


@pytest.fixture(scope="session")
def datum():
    return make_datum


def connected(gateway, key=None):
    return tinker.ServiceClient(base_url=gateway.url, api_key=key or gateway.key)


def make_datum(tokens=(1, 2, 3), targets=(2, 3, 4), weights=(1.0, 1.0, 1.0)):
    inputs = {"target_tokens": list(targets), "weights": list(weights)}
    return types.Datum(model_input=types.ModelInput.from_ints(list(tokens)), loss_fn_inputs=inputs)
