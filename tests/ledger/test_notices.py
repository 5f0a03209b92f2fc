import threading
import time

import pytest

from openrl.domain.errors import OpCancelled
from openrl.domain.ids import BatchId, OpId
from openrl.ledger.notices import MemoryNotices, RedisNotices


@pytest.fixture
def notices(stage, request):
    scene = stage()
    if request.node.callspec.params["stage"] == "memory":
        notices = MemoryNotices(scene.ledger)
    else:
        notices = RedisNotices(request.getfixturevalue("client"))
    notices.scene = scene
    yield notices
    notices.close()


def wait_for(event: threading.Event) -> None:
    assert event.wait(5.0), "nobody woke the waiter"


def until(condition) -> None:
    deadline = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.002)


def listeners(client) -> int:
    return client.pubsub_numsub("openrl:settled")[0][1]


# ------------------------------------------------------------------------------------------------ both kinds
@pytest.mark.parametrize("ending", ["done", "cancelled"])
def test_a_waiter_is_woken_when_its_op_settles(notices, ending):
    scene, woken = notices.scene, threading.Event()
    op_id = scene.sample()
    notices.subscribe(op_id, woken.set)
    assert scene.ledger.read(op_id).result is None
    if ending == "done":
        scene.finish(op_id)
    else:
        scene.ledger.cancel(op_id, OpCancelled())
    wait_for(woken)


def test_who_waits_for_a_batch_is_woken_as_each_of_its_groups_ends(notices, monkeypatch):
    monkeypatch.setattr("openrl.ledger.notices.LOOK_EVERY_SECONDS", 3600.0)
    scene = notices.scene
    scene.open_batch(2)
    for number in range(2):
        woken = threading.Event()
        sample, reward = scene.group(number)
        notices.subscribe(BatchId("b"), woken.set)
        scene.finish(sample)
        assert not woken.wait(0.3), "the group has not ended"
        scene.ledger.cancel(reward, OpCancelled())
        wait_for(woken)


def test_everyone_who_waits_for_an_op_is_woken_once(notices):
    scene, wakes, end = notices.scene, [], threading.Event()
    op_id, last = scene.sample(0), scene.sample(1)
    for name in "ab":
        notices.subscribe(op_id, lambda name=name: wakes.append(name))
    notices.subscribe(last, end.set)
    scene.finish(op_id)
    scene.finish(last)
    wait_for(end)
    assert wakes == ["a", "b"]


def test_who_unsubscribed_is_not_woken(notices):
    scene, wakes, end = notices.scene, [], threading.Event()
    op_id, last = scene.sample(0), scene.sample(1)
    unsubscribe = notices.subscribe(op_id, lambda: wakes.append("gone"))
    notices.subscribe(last, end.set)
    unsubscribe()
    unsubscribe()
    scene.finish(op_id)
    scene.finish(last)
    wait_for(end)
    assert wakes == []


def test_a_waiter_that_fails_does_not_silence_the_others(notices, caplog):
    scene, woken = notices.scene, threading.Event()
    op_id = scene.sample()

    def fail() -> None:
        raise RuntimeError("event loop is closed")

    notices.subscribe(op_id, fail)
    notices.subscribe(op_id, woken.set)
    scene.finish(op_id)
    wait_for(woken)
    assert "could not be woken" in caplog.text


# ------------------------------------------------------------------------------------------------ Redis
def test_a_thousand_waiters_are_woken_through_one_connection(redis_scene, client):
    ids = [redis_scene.sample(number) for number in range(1000)]
    before = client.info("clients")["connected_clients"]
    notices, left, end = RedisNotices(client), set(ids), threading.Event()

    def wake(op_id: OpId) -> None:
        left.discard(op_id)
        if not left:
            end.set()

    for op_id in ids:
        notices.subscribe(op_id, lambda op_id=op_id: wake(op_id))
    until(lambda: listeners(client) == 1)
    for op_id in ids:
        redis_scene.finish(op_id)
    wait_for(end)
    assert client.info("clients")["connected_clients"] <= before + 2  # the channel, and one for looking up
    assert listeners(client) == 1
    notices.close()


def test_a_wake_missed_for_any_reason_is_made_good_by_looking(redis_scene, client, monkeypatch):
    monkeypatch.setattr("openrl.ledger.notices.LOOK_EVERY_SECONDS", 0.05)
    monkeypatch.setattr("openrl.ledger.notices.LISTEN_SECONDS", 0.02)
    op_id, forgotten = redis_scene.sample(), OpId("forgotten")
    redis_scene.finish(op_id)
    notices, woken, gone = RedisNotices(client), threading.Event(), threading.Event()
    until(lambda: listeners(client) == 1)
    notices.subscribe(op_id, woken.set)
    notices.subscribe(forgotten, gone.set)
    wait_for(woken)
    wait_for(gone)
    notices.close()


@pytest.mark.parametrize("settled_before_the_listener_is_back", [True, False])
def test_a_broker_restart_loses_no_wake(own_server, new_scene, monkeypatch, settled_before_the_listener_is_back):
    monkeypatch.setattr("openrl.ledger.notices.LOOK_EVERY_SECONDS", 3600.0)
    with own_server.client() as client, own_server.client() as listening:
        scene, woken = new_scene().on_redis(client), threading.Event()
        op_id = scene.sample()
        if settled_before_the_listener_is_back:
            monkeypatch.setattr("openrl.ledger.notices.RECONNECT_SECONDS", (0.5,))
        notices = RedisNotices(listening)
        notices.subscribe(op_id, woken.set)
        until(lambda: listeners(client) == 1)
        own_server.kill()
        time.sleep(0.15)  # longer than the listener's own retries
        own_server.start(durable=True)
        if not settled_before_the_listener_is_back:
            until(lambda: listeners(client) == 1)
        scene.finish(op_id)
        wait_for(woken)
        notices.close()


def test_closing_is_quick_and_ends_the_thread(client):
    notices = RedisNotices(client)
    start = time.monotonic()
    notices.close()
    assert time.monotonic() - start < 1.0
    assert not any(thread.name == "notices" for thread in threading.enumerate())
