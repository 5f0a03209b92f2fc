import pytest

from openrl.config import Sample, Settings, Train
from openrl.domain.errors import SettingInvalid
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
