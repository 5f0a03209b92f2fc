import pytest
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import config_from_args

from openrl.config import Train
from openrl.domain.errors import SettingInvalid
from workers.train.group import launch as module
from workers.train.group.launch import STOP_SECONDS, exit_status, launch


def test_the_lowest_rank_that_ended_by_itself_tells_why() -> None:
    assert exit_status({1: 75, 0: 78}) == 78
    assert exit_status({1: -9, 0: 75}) == 75
    assert exit_status({0: -15, 2: 1}) == 1


def test_ranks_that_were_all_killed_are_a_failure() -> None:
    assert exit_status({0: -9, 1: -9}) == 1


def test_only_train_workers_are_groups() -> None:
    with pytest.raises(SettingInvalid, match="only a train worker"):
        launch("sample", 2, Train())


def test_a_group_trains_no_full_runs() -> None:
    with pytest.raises(SettingInvalid, match=r"OPENRL_TRAIN__FULL_RUNS: .* unset it, .*\(no --processes\)"):
        launch("train", 2, Train(full_runs=True))


def test_a_group_does_not_start_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("MASTER_ADDR", "here")
    with pytest.raises(SettingInvalid, match="leave --processes away"):
        launch("train", 2, Train())


def test_the_launcher_leaves_a_drain_the_time_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "environ", {})
    started: list[LaunchConfig] = []
    monkeypatch.setattr(module, "run", lambda arguments: started.append(config_from_args(arguments)[0]))
    assert launch("train", 2, Train()) == 0
    (config,) = started
    assert config.nproc_per_node == 2
    assert config.shutdown_timeout == STOP_SECONDS
