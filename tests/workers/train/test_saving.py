"""What leaves a run: written once, handed over only as it was written, and let go of as the run goes on."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from torch import Tensor

from openrl.catalog.repository import Catalog
from openrl.config import Retention
from openrl.depot.filesystem import FsspecDepot
from openrl.domain.errors import WeightsRemoved
from openrl.domain.ids import DepotKey, OpId, RunId, SamplerId, TenantId
from openrl.domain.op import Bell, Op, Sample, SampleOp, SavePolicy, SaveWeights, TrainOp
from openrl.domain.outcome import WeightsSaved
from openrl.domain.policy import Sampler
from openrl.domain.run import LoraSpec, Run
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import DType
from openrl.domain.tensor import Tensor as Raw
from openrl.ledger.memory import MemoryLedger
from workers.expiry import prune
from workers.model.adapter_files import from_files
from workers.model.layout import LoraShape
from workers.train.engine import TrainEngine
from workers.train.saving import Saving

KEPT = Retention(unnamed_per_run=16, unused_seconds=0.0)


@dataclass
class Bench:
    """A run on a tiny model, and everything that a policy version of it touches."""

    engine: TrainEngine
    catalog: Catalog
    depot: FsspecDepot
    ledger: MemoryLedger
    run: Run
    handed: dict[DepotKey, tuple[LoraShape, Tensor]]
    ops: int = 0

    def __post_init__(self) -> None:
        self.engine.create(self.run.id, LoraSpec(rank=2))
        self.saving = Saving(self.ledger, self.depot, self.catalog, self.hand_over)

    def hand_over(self, key: DepotKey, shape: LoraShape, flat: Tensor) -> None:
        self.handed[key] = (shape, flat.clone())

    def policy(self, turn: int) -> DepotKey:
        return DepotKey(f"policies/{self.run.session}-{turn}")

    def sampler(self, turn: int) -> Sampler:
        id = SamplerId(f"{self.run.session}:sample:{turn}")
        known = {"tenant": self.run.tenant, "session": self.run.session, "base_model": "tiny"}
        return Sampler(id=id, requested_model="tiny", policy=self.policy(turn), run=self.run.id, **known)

    def append(self, op: Op) -> None:
        self.ledger.append(op, Bell(op=op.id, queue="q", task="t", summary=""))

    def save(self, turn: int) -> None:
        """As gateway and worker do it: the sampler's row, the op, its bytes, its end."""
        self.engine.run(self.run.id).weights.add_(1e-3)
        self.catalog.add_sampler(self.sampler(turn))
        op = self.save_op(turn)
        self.append(op)
        held = self.ledger.claim(op.id)
        assert held is not None
        self.ledger.done(held, self.write(op))

    def save_op(self, turn: int) -> TrainOp:
        action = SavePolicy(target=self.policy(turn), sampler=self.sampler(turn).id)
        return TrainOp(id=OpId(f"save {turn}"), tenant=self.run.tenant, run=self.run.id, turn=turn, action=action)

    def write(self, op: TrainOp) -> WeightsSaved:
        assert isinstance(op.action, SavePolicy)
        return self.saving.policy(op, op.action, self.engine.policy(self.run.id), self.engine.adapter(self.run.id))

    def sample(self, turn: int) -> OpId:
        self.ops += 1
        action = Sample(
            base_model="tiny",
            policy=self.policy(turn),
            prompt=Raw(dtype=DType.INT32, shape=(1,), data=bytes(4)),
            num_samples=1,
            params=SamplingParams(max_tokens=1),
        )
        op_id, sampler = OpId(f"sample {self.ops}"), self.sampler(turn).id
        self.append(SampleOp(id=op_id, tenant=self.run.tenant, sampler=sampler, number=self.ops, action=action))
        return op_id

    def finish(self, op_id: OpId) -> None:
        held = self.ledger.claim(op_id)
        assert held is not None
        self.ledger.done(held, WeightsSaved(path=None))

    def prune(self, rules: Retention = KEPT) -> None:
        prune(self.catalog, self.ledger, self.depot, rules)

    def there(self) -> set[int]:
        return {int(key.split("/")[1].rpartition("-")[2]) for key in self.depot.list("policies")}

    def size(self, folder: str = "") -> int:
        return sum(len(self.depot.get(key)) for key in self.depot.list(folder))


@pytest.fixture
def bench(engine: TrainEngine, tmp_path: Path) -> Iterator[Bench]:
    catalog = Catalog("sqlite://")
    catalog.migrate()
    tenant = catalog.create_key("anna")[0].tenant
    session = catalog.create_session(
        tenant, tags=[], user_metadata={}, display_name=None, sdk_version="test", project_id=None
    )
    now = datetime.now(UTC)
    run = Run(
        id=RunId(f"{session}:train:0"),
        tenant=TenantId(tenant),
        session=session,
        base_model="tiny",
        requested_model="tiny",
        lora=LoraSpec(rank=2),
        created_at=now,
        last_request_at=now,
    )
    catalog.add_run(run)
    depot = FsspecDepot(f"file://{tmp_path / 'depot'}")
    yield Bench(engine, catalog, depot, MemoryLedger(lambda bell: None), run, {})
    catalog.close()


def test_what_is_handed_over_is_what_the_files_hold_to_the_bit(bench: Bench) -> None:
    bench.engine.run(bench.run.id).weights.normal_()
    bench.save(0)
    shape, flat = bench.handed[bench.policy(0)]
    read_shape, read = from_files(bench.engine.base.layout, bench.depot.get_folder(bench.policy(0)))
    assert shape == read_shape
    assert torch.equal(flat.view(torch.int32), read.view(torch.int32))


def test_whoever_repeats_a_turn_with_other_weights_changes_nothing_and_hands_nothing_over(bench: Bench) -> None:
    bench.save(0)
    first = bench.depot.get_folder(bench.policy(0))
    bench.handed.clear()
    bench.write(bench.save_op(0))
    assert bench.handed.keys() == {bench.policy(0)}, "the same weights again"
    bench.handed.clear()
    bench.engine.run(bench.run.id).weights.add_(1e-3)
    bench.write(bench.save_op(0))
    assert bench.handed == {}
    assert bench.depot.get_folder(bench.policy(0)) == first


def test_a_sweep_of_300_steps_in_one_session_leaves_a_few_versions(bench: Bench) -> None:
    bench.save(0)
    one = bench.size()
    for turn in range(1, 300):
        bench.save(turn)
        bench.finish(bench.sample(turn))
        if turn % 10 == 0:
            assert bench.size() <= (KEPT.unnamed_per_run + 10) * one
            bench.prune()
    bench.prune()
    assert bench.there() == set(range(300 - KEPT.unnamed_per_run, 300))
    assert bench.size() == KEPT.unnamed_per_run * one, "nothing else is left in the depot"


def test_versions_in_use_are_kept_and_the_others_refused_by_name(bench: Bench) -> None:
    rules = Retention(unnamed_per_run=2, unused_seconds=0.0)
    for turn in range(6):
        bench.save(turn)
    waiting = bench.sample(1)
    bench.prune(rules)
    assert bench.there() == {1, 4, 5}
    with pytest.raises(WeightsRemoved, match=bench.sampler(0).id):
        bench.sample(0)
    assert bench.catalog.sampler(bench.run.tenant, bench.sampler(0).id).removed
    assert not bench.catalog.sampler(bench.run.tenant, bench.sampler(1).id).removed
    bench.finish(waiting)
    bench.prune(rules)
    assert bench.there() == {4, 5}


def test_versions_used_of_late_are_kept(bench: Bench) -> None:
    for turn in range(4):
        bench.save(turn)
    bench.prune(Retention(unnamed_per_run=1, unused_seconds=3600.0))
    assert bench.there() == {0, 1, 2, 3}
    bench.prune(Retention(unnamed_per_run=1, unused_seconds=0.0))
    assert bench.there() == {3}


def test_a_version_that_is_yet_to_be_written_is_not_given_up(bench: Bench) -> None:
    bench.catalog.add_sampler(bench.sampler(0))
    op = bench.save_op(0)
    bench.append(op)
    for turn in (1, 2):
        bench.catalog.add_sampler(bench.sampler(turn))
    bench.prune(Retention(unnamed_per_run=1, unused_seconds=0.0))
    held = bench.ledger.claim(op.id)
    assert held is not None
    bench.ledger.done(held, bench.write(op))
    bench.finish(bench.sample(0))


def test_a_checkpoint_that_is_written_over_is_refused_to_its_samplers(bench: Bench) -> None:
    bench.catalog.add_sampler(bench.sampler(0))
    for turn in range(2):
        action = SaveWeights(target=bench.policy(turn), path=f"tinker://{bench.run.id}/weights/a", overwrite=True)
        op = TrainOp(id=OpId(f"{turn}"), tenant=bench.run.tenant, run=bench.run.id, turn=turn, action=action)
        bench.saving.weights(op, action, bench.engine.checkpoint(bench.run.id))
    assert bench.there() == {1}
    assert bench.catalog.sampler(bench.run.tenant, bench.sampler(0).id).removed
    with pytest.raises(WeightsRemoved):
        bench.sample(0)


def test_a_removal_that_a_crash_broke_off_is_finished(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for turn in range(3):
        bench.save(turn)
    rules = Retention(unnamed_per_run=1, unused_seconds=0.0)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(bench.catalog, "policy_removed", _crash)
        bench.prune(rules)
    with pytest.raises(WeightsRemoved):
        bench.sample(0)
    bench.prune(rules)
    assert bench.there() == {2}
    assert bench.catalog.sampler(bench.run.tenant, bench.sampler(0).id).removed


def _crash(_: DepotKey) -> None:
    raise KeyboardInterrupt
