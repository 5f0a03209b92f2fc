"""A tenant that queues more than a worker can do, and another one that asks for a little."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from living import Server, wait_for

from openrl.catalog.repository import Catalog
from openrl.domain.worker import Role
from openrl.ledger.roster import RedisRoster

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from flood import Tenant
from rig import Served

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

FLOOD = 1000


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one lane: nobody gets past a flood by luck."""
    server = Server.start(tmp_path_factory.mktemp("narrow"), "--no-flower", OPENRL_SAMPLE__LANES="1")
    yield server
    server.stop()


def another_key(server: Server) -> str:
    catalog = Catalog(f"sqlite:///{server.home / 'catalog.db'}")
    _, key = catalog.create_key("somebody else")
    catalog.close()
    return key


def test_a_small_request_is_through_while_another_tenants_flood_still_waits(narrow: Server) -> None:
    served = Served(narrow.url, narrow.api_key, "tiny")
    large, small = Tenant(served, narrow.api_key, 32), Tenant(served, another_key(narrow), 16)
    connection = small.connection()
    flood = large.flood(FLOOD)
    small.sample(connection)
    with redis.Redis.from_url(narrow.status["broker"]) as client:
        wait_for("the flood to end", lambda: not client.hgetall("openrl:tenants"), 200)
        ended = [op_id.decode() for op_id in client.zrange("openrl:endings", 0, -1)]
        attempts = {client.hget(f"openrl:op:{op_id}", "attempts") for op_id in flood}
    (one,) = set(ended) - set(flood)
    assert len(ended) == FLOOD + 1 and attempts == {b"1"}
    assert len(ended) - ended.index(one) > FLOOD // 4, "what came before it ended after it"


def test_a_worker_brings_two_slots_for_each_op_that_it_works_on_at_once(narrow: Server) -> None:
    with redis.Redis.from_url(narrow.status["broker"]) as client:
        brought = {key.split(b":")[-1].split(b".")[0]: client.hvals(key) for key in client.scan_iter("openrl:slots:*")}
        slots = {worker.role: worker.slots for worker in RedisRoster(client).workers()}
    assert brought == {b"sample": [b"128"], b"reward": [b"4"]}
    assert slots == {Role.DEVICE: 128, Role.REWARD: 2}
