from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest

from openrl.domain.ids import WorkerId
from openrl.domain.worker import DeviceUse, Role, SideUse, WorkerInfo
from openrl.gateway.routes.workers import router

USE = DeviceUse(
    seconds=8.0,
    busy_seconds=3.5,
    train=SideUse(seconds=3.0, passes=2, tokens=40),
    sample=SideUse(seconds=1.0, passes=9, tokens=9),
)
SCORER = WorkerInfo(
    id=WorkerId("zz"),
    role=Role.REWARD,
    host="here",
    pid=1,
    rewards=("exact",),
    slots=2,
    started_at=datetime(2026, 1, 2, 3, tzinfo=UTC),
)


@pytest.fixture
def own(gateway):
    with httpx.Client(base_url=f"{gateway.url}{router.prefix}", headers={"x-api-key": gateway.key}) as client:
        yield client


def test_workers_are_told_with_how_busy_they_are(own, gateway):
    toy = gateway.services.roster.workers()[0]
    gateway.services.roster.announce(replace(toy, use=USE), 60.0)
    gateway.services.roster.announce(SCORER, 60.0)
    device, scorer = own.get("workers").json()
    assert (device["id"], device["role"], device["models"], device["slots"]) == ("toy", "device", ["toy"], 1)
    assert device["since"] == toy.started_at.isoformat()
    assert device["use"] == {
        "seconds": 8.0,
        "busy_seconds": 3.5,
        "train": {"seconds": 3.0, "passes": 2, "tokens": 40},
        "sample": {"seconds": 1.0, "passes": 9, "tokens": 9},
    }
    assert (scorer["role"], scorer["models"], scorer["use"]) == ("reward", [], None)
    assert (device["rewards"], scorer["rewards"]) == ([], ["exact"])
    assert scorer["since"] == "2026-01-02T03:00:00+00:00"


def test_only_with_a_key(gateway):
    assert httpx.get(f"{gateway.url}{router.prefix}/workers").status_code == 401


def test_a_worker_that_drains_says_so_and_counts_for_nothing(own, gateway):
    toy = gateway.services.roster.workers()[0]
    gateway.services.roster.announce(replace(toy, draining=True), 60.0)
    assert [each["draining"] for each in own.get("workers").json() if each["id"] == "toy"] == [True]
    gateway.services._workers._kept.clear()
    assert {each["workers"] for each in own.get("queues").json() if each["model"] == "toy"} == {0}
    assert {depth.slots for depth in gateway.services.depths() if depth.kind == "train"} == {0}
    gateway.services.roster.announce(toy, 3600.0)
