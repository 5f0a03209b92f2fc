from contextlib import ExitStack
from typing import Any

import pytest

from openrl.config import Settings, Train
from openrl.domain.errors import SettingInvalid
from workers.device import training
from workers.model.base import BaseModel
from workers.train.engine import TrainEngine
from workers.train.seat import needed_bytes
from workers.train.tiers import DEVICE_SHARE


@pytest.fixture
def base() -> BaseModel:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = LlamaConfig(vocab_size=32, num_attention_heads=2, num_key_value_heads=2, **sizes)
    return BaseModel(LlamaForCausalLM(config).to(torch.float32).eval(), "tiny")


def test_full_runs_are_refused_at_start_where_none_has_room(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def trainer(settings: Settings) -> TrainEngine:
        return training.trainer_on(base, settings, ExitStack(), None)

    enabled = Settings(train=Train(full_runs=True))
    assert trainer(enabled).seat is not None
    assert trainer(Settings()).seat is None
    monkeypatch.setattr(training, "available_bytes", lambda device: 1000)
    with pytest.raises(SettingInvalid, match=r"OPENRL_TRAIN__FULL_RUNS: .* takes 0\.0 GB here beside the base model"):
        trainer(enabled)
    assert trainer(Settings()).seat is None


def test_what_the_seat_may_take_is_no_room_for_other_runs(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "available_bytes", lambda device: 10**9)
    budgets = [
        training.budgets_of(settings, training.trainer_on(base, settings, ExitStack(), None)).device
        for settings in (Settings(), Settings(train=Train(full_runs=True)))
    ]
    assert budgets == [int(DEVICE_SHARE * each) for each in (10**9, 10**9 - needed_bytes(base))]
