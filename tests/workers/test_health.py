from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from openrl.cli.ports import free_port
from openrl.config import Metrics
from queues.hearing import Hearing
from workers.health import SILENT_SECONDS, Health, follower_told
from workers.station import Station


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def here() -> Station:
    nothing: Any = None
    return Station(worker=nothing, redis=nothing, ledger=nothing, depot=nothing, keeper=nothing)


@pytest.fixture
def health(here: Station, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Health]:
    hearing, app = Hearing(clock), None
    health = Health(app, here, hearing, "redis://127.0.0.1:1")
    monkeypatch.setattr(health, "_broker_answers", lambda: True)
    yield health
    health.close()


def hear(health: Health) -> None:
    health.announced = True
    health._hearing.look(full=True, listens=True)


def test_while_it_starts_it_is_alive_and_not_ready(health: Health, clock: Clock) -> None:
    clock.now += 1000
    assert not health.sick() and health.unready().startswith("starting")


def test_it_is_ready_once_it_hears_and_others_know_of_it(health: Health) -> None:
    health._hearing.look(full=True, listens=True)
    assert "do not know of it" in health.unready()
    hear(health)
    assert not health.unready() and not health.sick()


def test_a_deaf_worker_is_sick_after_a_while(health: Health, clock: Clock) -> None:
    hear(health)
    clock.now += SILENT_SECONDS - 1
    assert not health.sick()
    clock.now += 1
    assert health.sick() == "its consumer has heard nothing for 30 s, and the broker answers others"
    assert health.unready()


def test_where_the_broker_answers_nobody_a_restart_would_not_help(
    health: Health, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear(health)
    clock.now += 1000
    monkeypatch.setattr(health, "_broker_answers", lambda: False)
    assert not health.sick() and health.unready()


def test_a_broker_that_is_not_there_answers_nobody(here: Station) -> None:
    health = Health(None, here, Hearing(), "redis://127.0.0.1:1")
    assert not health._broker_answers()
    health.close()


def test_a_worker_that_drains_is_alive_and_not_ready(health: Health, here: Station, clock: Clock) -> None:
    hear(health)
    here.drains_since = 0.0
    clock.now += 1000
    assert not health.sick() and health.unready().startswith("draining")


def test_a_rank_other_than_0_tells_of_itself_on_a_port_behind():
    first = free_port()
    with follower_told(Metrics(port=first), 1) as loaded:
        at = f"http://127.0.0.1:{first + 1}"
        assert httpx.get(f"{at}/healthz").status_code == 200
        assert "being loaded" in httpx.get(f"{at}/readyz").text
        loaded()
        assert httpx.get(f"{at}/readyz").status_code == 200
        text = httpx.get(f"{at}/metrics").text
        assert "process_resident_memory_bytes" in text
        assert "openrl_worker_ready" not in text, "which is rank 0's"


def test_a_rank_without_a_port_for_metrics_tells_nothing():
    with follower_told(Metrics(port=0), 3) as loaded:
        loaded()
