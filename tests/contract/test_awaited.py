"""A base model that no worker serves yet: the SDK waits, and its work is done when a worker comes."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import tinker
from tinker import types

from openrl.config import Gateway
from openrl.domain.ids import WorkerId
from openrl.domain.worker import Role, WorkerInfo
from openrl.gateway.doubles import toy_gateway
from openrl.ledger.port import Limits
from openrl.testing import TOY_CARD


@pytest.fixture
def gateway(tmp_path):
    listed = Gateway(poll_seconds=0.2, awaited_models=("org/other",))
    with toy_gateway(tmp_path, gateway=listed, limits=Limits(ring_again_seconds=0.05)) as up:
        up.worker.hears = lambda bell: "other" not in bell.queue
        yield up


def arrive(gateway):
    """A worker of the other model starts."""
    started = datetime.now(UTC)
    card = replace(TOY_CARD, name="org/other", aliases=())
    info = WorkerInfo(
        id=WorkerId("late"), role=Role.DEVICE, host="here", pid=2, cards=(card,), slots=1, started_at=started
    )
    gateway.services.roster.announce(info, 60.0)
    gateway.worker.hears = lambda bell: True
    gateway.services.ledger.sweep()


def test_a_run_is_created_and_trained_once_a_worker_comes(gateway, connect, datum):
    with connect(gateway) as service, ThreadPoolExecutor(1) as pool:
        rest = tinker.RestClient(base_url=gateway.url, api_key=gateway.key)
        models = rest.get_server_capabilities().result().supported_models
        assert "org/other" in {model.model_name for model in models}
        creating = pool.submit(lambda: service.create_lora_training_client("org/other", rank=8).result())
        time.sleep(1.0)
        assert not creating.done() and not gateway.worker.seen
        arrive(gateway)
        training = creating.result(20)
        assert training.forward_backward([datum()], "cross_entropy").result().metrics["loss:sum"] > 0
        assert training.optim_step(types.AdamParams(learning_rate=1e-3)).result().metrics == {"step": 1.0}


def test_a_sample_waits_and_the_sdk_tells_the_user_why(gateway, connect, caplog):
    with connect(gateway) as service, caplog.at_level(logging.WARNING):
        sampler = service.create_sampling_client(base_model="org/other").result()
        sampling = sampler.sample(types.ModelInput.from_ints([5]), 1, types.SamplingParams(max_tokens=2))
        deadline = time.monotonic() + 10
        while "no worker serves org/other at the moment; waiting for one" not in caplog.text:
            assert time.monotonic() < deadline, caplog.text
            time.sleep(0.05)
        assert not gateway.worker.seen
        arrive(gateway)
        assert list(sampling.result(20).sequences[0].tokens) == [6, 7]


def test_a_model_that_nobody_listed_is_refused_at_once(gateway, connect):
    with connect(gateway) as service, pytest.raises(tinker.UnprocessableEntityError, match="served models: toy"):
        service.create_lora_training_client("org/else", rank=8).result()
