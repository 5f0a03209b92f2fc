import logging
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import redis
from celery import signals

from openrl.config import Sample, Settings, Train
from openrl.domain.errors import LedgerUnreachable, SettingInvalid
from openrl.domain.ids import WorkerId
from openrl.domain.worker import Role
from workers import start

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "some",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
}


@pytest.mark.parametrize("role", ["device", "sample", "reward"])
def test_torchrun_starts_groups_of_train_workers_only(monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingInvalid, match=f"not a {role} worker"):
        start.run(role, Settings(redis_url="redis://localhost:1"))


def test_torchrun_starts_no_full_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingInvalid, match=r"OPENRL_TRAIN__FULL_RUNS: .*\(no torchrun\)"):
        start.run("train", Settings(redis_url="redis://localhost:1", train=Train(full_runs=True)))


def test_a_worker_that_trains_and_samples_does_not_start_with_vllm() -> None:
    with pytest.raises(SettingInvalid, match=r"OPENRL_SAMPLE__ENGINE: .*workers of its own"):
        start.run("device", Settings(redis_url="redis://localhost:1", sample=Sample(engine="vllm")))


def test_a_named_worker_may_start_before_the_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has loaded its model meanwhile, and Celery waits for the broker as long as it takes."""
    monkeypatch.setenv("OPENRL_WORKER_ID", "pod")
    for signal in (signals.worker_ready, signals.worker_shutting_down):
        monkeypatch.setattr(signal, "receivers", [])
    caplog.set_level(logging.INFO)
    nobody = redis.Redis(port=1, retry=None)
    here = SimpleNamespace(
        redis=nobody, worker=WorkerId("pod-1"), use=None, tell_timeline=None, drains_since=None, rewards=(), ledger=None
    )
    health = SimpleNamespace(announced=False)
    with nobody, pytest.raises(LedgerUnreachable), ExitStack() as closing:  # it cannot take its leave either
        start._announce_and_sweep(here, Role.REWARD, (), 1, closing, health)
        signals.worker_ready.send(sender=None)
        assert [record.message for record in caplog.records if record.name == start.__name__][-1] == "ready"
    assert "not announced yet: the ledger does not answer" in caplog.text
    assert not health.announced
