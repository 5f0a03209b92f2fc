"""Apple's MPS has no float64: what runs where the model runs never makes one."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from openrl.domain.datum import Loss
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from workers.model.base import BaseModel
from workers.train.engine import TrainEngine
from workers.train.objective import Objective


class Doubles(TorchDispatchMode):
    """Notes the operations that make a float64 tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []
        self.elsewhere = False  #: what is computed is on the CPU in any case

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, torch.Tensor) and each.dtype is torch.float64 and not self.elsewhere:
                self.made.append(str(func))
        return out


@pytest.fixture
def doubles(monkeypatch: pytest.MonkeyPatch) -> Doubles:
    """The sums of a batch's statistics are exempt: `Objective.sums` is given log-probabilities on the CPU."""
    doubles, sums = Doubles(), Objective.sums

    def exempt(self: Objective, lp: torch.Tensor) -> Any:
        assert lp.device.type == "cpu"
        doubles.elsewhere = True
        try:
            return sums(self, lp)
        finally:
            doubles.elsewhere = False

    monkeypatch.setattr(Objective, "sums", exempt)
    return doubles


def test_no_training_verb_makes_a_float64(doubles: Doubles, base: BaseModel, make: Any) -> None:
    with doubles:
        engine = TrainEngine(base)
        for name in ("a", "b"):
            engine.create(name, LoraSpec(rank=2, seed=1))
        batches = [
            make.batch("a", loss, (9, 4), loss_config={"beta": 0.1} if loss is Loss.DRO else {}) for loss in Loss
        ]
        results = engine.forward_backward([*batches, make.batch("b", Loss.PPO, (5,), forward_only=True)])
        engine.optim_steps([("a", AdamParams(grad_clip_norm=0.1, weight_decay=0.1)), ("b", AdamParams())])
        engine.load("c", engine.checkpoint("a"), with_optimizer=True)
    assert all(isinstance(result, BatchResult) for result in results)
    assert doubles.made == []


def test_a_float64_would_be_noticed(doubles: Doubles) -> None:
    with doubles:
        torch.ones(2).double()
    assert doubles.made
