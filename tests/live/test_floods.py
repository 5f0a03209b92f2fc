"""A tenant that queues more than a worker can do, and another one that asks for a little."""

from collections.abc import Iterator

import pytest
import redis
import tinker
from living import Server, wait_for

from openrl.catalog.repository import Catalog
from openrl.domain.worker import Role
from openrl.ledger.roster import RedisRoster

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

FLOOD = 600


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one lane: nobody gets past a flood by luck."""
    server = Server.start(tmp_path_factory.mktemp("narrow"), "--no-flower", OPENRL_SAMPLE__LANES="1")
    yield server
    server.stop()


def sampler_of(server: Server, api_key: str) -> tinker.SamplingClient:
    service = tinker.ServiceClient(base_url=server.url, api_key=api_key)
    return service.create_sampling_client(base_model="tiny").result()


def another_key(server: Server) -> str:
    catalog = Catalog(f"sqlite:///{server.home / 'catalog.db'}")
    _, key = catalog.create_key("somebody else")
    catalog.close()
    return key


def ask(sampler: tinker.SamplingClient, tokens: int, seed: int = 0):
    params = tinker.SamplingParams(max_tokens=tokens, seed=seed, stop=[])
    return sampler.sample(tinker.ModelInput.from_ints([11, 12, 13]), 1, params)


def unsettled(client: redis.Redis) -> int:
    return sum(int(count) for count in client.hvals("openrl:tenants"))


def test_a_small_request_is_through_while_another_tenants_flood_still_waits(narrow: Server) -> None:
    small = sampler_of(narrow, another_key(narrow))
    ask(small, 1).result(60)
    large = sampler_of(narrow, narrow.api_key)
    flood = [ask(large, 32, seed) for seed in range(FLOOD)]
    with redis.Redis.from_url(narrow.status["broker"]) as client:
        wait_for("the flood to stand in line", lambda: bool(client.exists("openrl:lines")))
        wait_for("most of it to be queued", lambda: unsettled(client) > FLOOD // 2)
        assert len(ask(small, 16).result(60).sequences[0].tokens) == 16
        assert unsettled(client) > FLOOD // 4
    assert {len(each.result(200).sequences[0].tokens) for each in flood} == {32}


def test_a_worker_brings_two_slots_for_each_op_that_it_works_on_at_once(narrow: Server) -> None:
    with redis.Redis.from_url(narrow.status["broker"]) as client:
        brought = {key.split(b":")[-1].split(b".")[0]: client.hvals(key) for key in client.scan_iter("openrl:slots:*")}
        slots = {worker.role: worker.slots for worker in RedisRoster(client).workers()}
    assert brought == {b"sample": [b"128"], b"reward": [b"4"]}
    assert slots == {Role.DEVICE: 128, Role.REWARD: 2}
