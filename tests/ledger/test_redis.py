"""What only the ledger in Redis can do wrong: bytes on the shelf, round trips, scripts, outages."""

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from openrl.domain.errors import ClaimLost, LedgerUnreachable, OpCancelled, TooManyWaiting
from openrl.domain.ids import DepotKey, OpId, RunId, TenantId, WorkerId
from openrl.domain.op import Status
from openrl.domain.outcome import Failure, StepResult
from openrl.ledger.port import Limits
from openrl.ledger.redis import RedisLedger
from openrl.ledger.scripts import lapse

BIG = 20_000  #: tokens; 80 kB


# ------------------------------------------------------------------------------------------------ the shelf
def test_a_big_body_lies_on_the_shelf_until_its_op_settles(redis_scene):
    op_id = redis_scene.sample(tokens=BIG)
    assert list(redis_scene.shelf) == [f"ops/{op_id}/body"]
    held = redis_scene.claim(op_id)
    assert held.op.action.prompt.elements == BIG
    redis_scene.ledger.failed(held, Failure(error="E", message="m", category="server"))
    assert redis_scene.shelf == {}


def test_a_small_body_never_sees_the_shelf(redis_scene):
    redis_scene.finish(redis_scene.sample())
    assert redis_scene.shelf == {}


def test_a_settled_row_keeps_no_body_and_no_bell(redis_scene, client):
    op_id = redis_scene.sample()
    redis_scene.finish(op_id)
    assert {b"body", b"bell"}.isdisjoint(client.hkeys(f"openrl:op:{op_id}"))


@pytest.mark.parametrize("ending", ["cancelled", "worn out", "swept"])
def test_a_big_body_leaves_the_shelf_however_its_op_ends(redis_scene, ending):
    op_id = redis_scene.sample(tokens=BIG)
    if ending == "cancelled":
        redis_scene.ledger.cancel(op_id, OpCancelled())
    elif ending == "worn out":
        for _ in range(3):
            redis_scene.ledger.give_back(redis_scene.claim(op_id))
        redis_scene.ledger.claim(op_id)
    else:
        for _ in range(3):
            redis_scene.claim(op_id)
            redis_scene.ahead += 16
            redis_scene.ledger.sweep()
    assert redis_scene.ledger.read(op_id).status is Status.FAILED
    assert redis_scene.shelf == {}


def test_a_big_body_of_a_repeated_or_refused_op_does_not_stay(redis_scene, client, new_scene):
    first = redis_scene.sample(0, tokens=BIG)
    assert redis_scene.sample(0, tokens=BIG) == first
    tight = new_scene(limits=Limits(max_waiting_per_tenant=1), shelf=redis_scene.shelf).on_redis(client)
    with pytest.raises(TooManyWaiting):
        tight.sample(1, tokens=BIG)
    assert list(redis_scene.shelf) == [f"ops/{first}/body"]


def test_a_big_result_lies_on_the_shelf_until_it_is_forgotten(redis_scene):
    op_id = redis_scene.reward()
    redis_scene.finish_with_bytes(redis_scene.claim(op_id), 100_000)
    assert list(redis_scene.shelf) == [f"ops/{op_id}/result-1"]
    assert len(redis_scene.ledger.read(op_id).result.info[0]["text"]) == 100_000
    redis_scene.ahead += 24 * 3600 + 1
    assert redis_scene.ledger.sweep().forgotten == 1
    assert redis_scene.shelf == {}


def test_a_worker_that_lost_its_op_cannot_touch_the_result_of_the_one_that_has_it(redis_scene):
    op_id = redis_scene.reward()
    zombie = redis_scene.claim(op_id)
    redis_scene.ahead += 16
    redis_scene.ledger.sweep()
    redis_scene.finish_with_bytes(redis_scene.claim(op_id), 50_000)
    with pytest.raises(ClaimLost):
        redis_scene.finish_with_bytes(zombie, 90_000)
    assert len(redis_scene.ledger.read(op_id).result.info[0]["text"]) == 50_000
    assert list(redis_scene.shelf) == [f"ops/{op_id}/result-2"]


def test_an_op_whose_body_the_shelf_lost_fails_and_its_run_goes_on(redis_scene):
    op_id = redis_scene.sample(tokens=BIG)
    redis_scene.shelf.clear()
    assert redis_scene.ledger.claim(op_id) is None
    assert redis_scene.ledger.read(op_id).failure.error == "BytesLost"
    assert redis_scene.ledger.waiting(TenantId("anna")) == 0


def test_a_result_that_the_shelf_lost_reads_as_a_failure(redis_scene):
    op_id = redis_scene.reward()
    redis_scene.finish_with_bytes(redis_scene.claim(op_id), 100_000)
    redis_scene.shelf.clear()
    record = redis_scene.ledger.read(op_id)
    assert (record.status, record.failure.error, record.result) == (Status.FAILED, "BytesLost", None)


def test_a_shelf_that_will_not_delete_does_not_undo_a_settlement(redis_scene, caplog, monkeypatch):
    def refuse(key):
        raise OSError("read-only")

    op_id = redis_scene.sample(tokens=BIG)
    monkeypatch.setattr(redis_scene.shelf, "delete", refuse, raising=False)
    redis_scene.finish(op_id)
    assert redis_scene.ledger.read(op_id).status is Status.DONE
    assert "left on the shelf" in caplog.text


# ------------------------------------------------------------------------------------------------ bells
def test_the_row_is_there_when_the_bell_rings(client, new_scene):
    seen = []

    class Looking(new_scene):
        def ring(self, bell):
            seen.append(self.ledger.read(bell.op).status)

    scene = Looking().on_redis(client)
    first, _ = scene.turn(0), scene.turn(1)
    scene.finish(first)
    assert seen == [Status.WAITING, Status.WAITING]


def test_a_sweep_puts_right_so_many_at_once_and_the_next_one_goes_on(redis_scene):
    for number in range(250):
        redis_scene.sample(number)
    redis_scene.ahead += 6
    assert [redis_scene.ledger.sweep().rung_again for _ in range(3)] == [200, 50, 0]


def test_sweeps_at_the_same_time_share_the_work(redis_scene):
    for number in range(100):
        redis_scene.claim(redis_scene.sample(number))
    redis_scene.bells()
    redis_scene.ahead += 16
    with ThreadPoolExecutor(4) as pool:
        swept = list(pool.map(lambda _: redis_scene.ledger.sweep(), range(8)))
    assert sum(one.taken_back for one in swept) == 100
    assert len(redis_scene.bells()) == 100


# ------------------------------------------------------------------------------------------------ Redis
def test_each_call_is_one_round_trip(redis_scene, client):
    def commands() -> int:
        return client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]

    def live(run: str) -> None:
        op_id = redis_scene.turn(0, run=run)
        held = redis_scene.claim(op_id)
        redis_scene.ledger.renew([held])
        redis_scene.ledger.give_back(held)
        redis_scene.finish_with_bytes(redis_scene.claim(op_id), 1)
        redis_scene.ledger.read(op_id)
        redis_scene.ledger.statuses([op_id] * 50)

    live("that has the server learn the scripts")
    before = commands()
    processed = client.info("stats")["total_reads_processed"]
    live("that is counted")
    assert client.info("stats")["total_reads_processed"] - processed == 8 + 1
    assert commands() - before == 6


def test_scripts_come_back_after_the_server_forgot_them(redis_scene, client):
    redis_scene.turn(0)
    client.script_flush()
    redis_scene.turn(1)


def test_two_prefixes_do_not_see_each_other(client, redis_scene):
    other = RedisLedger(client, {}, redis_scene.ring, holder="h", limits=Limits(), prefix="other:")
    op_id = redis_scene.turn(0)
    assert other.read(op_id) is None
    assert all(key.startswith(b"openrl:") for key in client.scan_iter())


def test_nothing_is_left_of_forgotten_ops_but_where_their_run_stands_and_its_lease(redis_scene, client):
    for run in ("r", "q"):
        redis_scene.ledger.skip(RunId(run), 1)
        redis_scene.turn(2, run=run)
        redis_scene.turn(4, run=run)
    redis_scene.turn(0, run="r")
    redis_scene.sample()
    for _ in range(4):
        for op_id in dict.fromkeys(redis_scene.bells()):
            held = redis_scene.claim(op_id)
            redis_scene.ledger.done(held, StepResult(metrics={}))
            if held.lease is not None:
                redis_scene.ledger.snapshotted(held.lease, held.op.turn, DepotKey(held.op.id))
        redis_scene.ahead += 121
        redis_scene.ledger.sweep()
    redis_scene.ahead += 24 * 3600
    redis_scene.ledger.sweep()
    assert sorted(client.keys()) == [b"openrl:lease:q", b"openrl:lease:r", b"openrl:next"]
    assert client.hgetall("openrl:next") == {b"r": b"5", b"q": b"5"}


def test_a_server_that_is_away_is_a_passing_error(own_server, new_scene):
    client = redis.Redis(port=own_server.port, retry=Retry(NoBackoff(), 0))
    scene = new_scene().on_redis(client)
    op_id = scene.turn(0)
    own_server.kill()
    for call in (lambda: scene.turn(1), lambda: scene.ledger.read(op_id), lambda: scene.ledger.statuses([op_id])):
        with pytest.raises(LedgerUnreachable):
            call()
    own_server.start(durable=True)
    assert scene.ledger.read(op_id).status is Status.WAITING
    assert scene.ledger.read(OpId("no")) is None
    client.close()


def test_what_a_worker_had_whose_end_is_known_is_anybodys_at_the_next_sweep(client, redis_scene):
    scene = redis_scene
    a, b = scene.for_worker("a"), scene.for_worker("b")
    a.done(a.claim(scene.turn(0)), StepResult(metrics={}))
    op_id, sample, bs = scene.turn(1), scene.sample(1), scene.sample(2)
    assert a.claim(op_id)
    assert a.claim(sample)
    assert b.claim(bs)
    lapse(client, WorkerId("a"))
    lapse(client, WorkerId("never seen"))
    scene.bells()
    assert b.sweep().taken_back == 2
    assert set(scene.bells()) == {op_id, sample}
    assert b.claim(op_id).lease.epoch == 2


# ------------------------------------------------------------------------------------------------ endings
def contents(client):
    return {key: client.dump(key) for key in client.scan_iter("*")}


@pytest.mark.parametrize(
    ("fields", "sums"),
    [
        ({}, {"add": {"reward": float("inf")}, "least": {}, "most": {}}),
        ({}, {"add": {"reward": 1.0}, "least": {"reward:least": float("nan")}, "most": {}}),
        ({}, {"add": {"reward": 1.0}}),
        ({"t:reward": "many"}, {"add": {"reward": 1.0}, "least": {}, "most": {}}),
        ({"t:reward": "1.7e308"}, {"add": {"reward": 1.7e308}, "least": {}, "most": {}}),
    ],
)
def test_an_ending_that_cannot_be_added_up_is_refused_before_anything_is_written(redis_scene, client, fields, sums):
    redis_scene.open_batch(1)
    sample, reward = redis_scene.group(0)
    redis_scene.finish(sample)
    held = redis_scene.claim(reward)
    for name, value in fields.items():
        client.hset("openrl:batch:b", name, value)
    before = contents(client)
    ending = ("result_kind", "scores", "result_at", "inline", "result", b"", "sums", msgspec.msgpack.encode(sums))
    with pytest.raises(redis.ResponseError):
        redis_scene.ledger._settle(held, Status.DONE, *ending)
    assert contents(client) == before
    with pytest.raises(redis.ResponseError):
        redis_scene.ledger._settle(held, Status.FAILED, "failure", b"\xc1")
    assert contents(client) == before
    redis_scene.ledger.failed(held, Failure(error="E", message="m", category="server"))
    assert client.hget("openrl:batch:b", "failed:E") == b"1"
