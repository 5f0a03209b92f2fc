from datetime import UTC, datetime

import pytest
import redis

from openrl.domain.ids import WorkerId
from openrl.domain.worker import Role, WorkerInfo
from workers import namesakes


class Told:
    """What a roster and a ledger would be told."""

    def __init__(self, *ids: str) -> None:
        self.ids = [WorkerId(each) for each in ids]
        self.left: list[str] = []
        self.lapsed: list[str] = []

    def workers(self) -> list[WorkerInfo]:
        facts = {"role": Role.SAMPLE, "host": "h", "pid": 1, "slots": 1, "started_at": datetime.now(UTC)}
        return [WorkerInfo(id=each, **facts) for each in self.ids]  # type: ignore[arg-type]

    def leave(self, worker: WorkerId) -> None:
        self.left.append(worker)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told("pod-0-aaaaaa", "pod-0-bbbbbb", "pod-1-cccccc", "pod-0-0-dddddd")
    monkeypatch.setattr(namesakes, "RedisRoster", lambda client: told)
    monkeypatch.setattr(namesakes, "lapse", lambda client, worker: told.lapsed.append(worker))
    return told


def bury(worker: str) -> None:
    with redis.Redis() as client:
        namesakes.bury_namesakes(client, WorkerId(worker))


def test_earlier_processes_of_a_named_worker_are_gone(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRL_WORKER_ID", "pod-0")
    bury("pod-0-bbbbbb")
    assert told.left == told.lapsed == ["pod-0-aaaaaa"]


def test_workers_without_a_name_may_share_a_host(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENRL_WORKER_ID", raising=False)
    bury("pod-0-bbbbbb")
    assert not told.left and not told.lapsed
