from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from openrl.catalog.repository import Catalog
from openrl.config import Retention
from openrl.depot.filesystem import FsspecDepot
from openrl.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointPath
from openrl.domain.errors import WeightsRemoved
from openrl.domain.ids import DepotKey, OpId, RunId, SamplerId, SessionId, TenantId
from openrl.domain.op import Bell, CreateRun, Sample, SampleOp, TrainOp
from openrl.domain.outcome import RunCreated
from openrl.domain.policy import Sampler
from openrl.domain.run import LoraSpec, Run
from openrl.domain.sampling import SamplingParams
from openrl.domain.tensor import DType, Tensor
from openrl.ledger.memory import MemoryLedger
from workers import expiry
from workers.expiry import expire, release

AT_ONCE = Retention(finished_seconds=0.0, silent_seconds=3600.0)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.db'}")
    catalog.migrate()
    yield catalog
    catalog.close()


@pytest.fixture
def depot(tmp_path: Path) -> FsspecDepot:
    return FsspecDepot(f"file://{tmp_path / 'depot'}")


@pytest.fixture
def tenant(catalog: Catalog) -> TenantId:
    key, _ = catalog.create_key("anna")
    return key.tenant


def begin(catalog: Catalog, tenant: TenantId) -> tuple[SessionId, RunId]:
    session = catalog.create_session(
        tenant, tags=[], user_metadata={}, display_name=None, sdk_version="test", project_id=None
    )
    now = datetime.now(UTC)
    run = Run(
        id=RunId(f"{session}:train:0"),
        tenant=tenant,
        session=session,
        base_model="tiny",
        requested_model="tiny",
        lora=LoraSpec(rank=4),
        created_at=now,
        last_request_at=now,
    )
    catalog.add_run(run)
    return session, run.id


def test_bytes_and_row_of_an_expired_checkpoint_go_and_others_stay(
    catalog: Catalog, depot: FsspecDepot, tenant: TenantId
) -> None:
    _, run = begin(catalog, tenant)
    ledger, now = MemoryLedger(lambda bell: None), datetime.now(UTC)
    for name, left in (("old", -1), ("new", 3600), ("kept", None)):
        depot.put_folder(f"checkpoints/{name}", {"adapter": b"x"})
        checkpoint = Checkpoint(
            path=CheckpointPath(run=run, kind=CheckpointKind.WEIGHTS, name=name),
            tenant=tenant,
            key=DepotKey(f"checkpoints/{name}"),
            op=OpId(name),
            size_bytes=1,
            created_at=now,
            expires_at=None if left is None else now + timedelta(seconds=left),
        )
        catalog.publish_checkpoint(checkpoint, overwrite=False)
    for _ in range(2):
        expire(catalog, ledger, depot)
        with pytest.raises(KeyError):
            depot.get_folder("checkpoints/old")
        assert {each.path.name for each in catalog.run_checkpoints(tenant, run)} == {"new", "kept"}
        assert depot.has_folder("checkpoints/new")


def test_an_expired_checkpoint_stays_for_samples_under_way_and_its_samplers_say_so_after(
    catalog: Catalog, depot: FsspecDepot, tenant: TenantId
) -> None:
    ledger = MemoryLedger(lambda bell: None)
    session = live(ledger, depot, catalog, tenant, "brief")
    _, named = (catalog.sampler(tenant, id) for id in catalog.session_samplers(tenant, session))
    assert named.policy is not None
    now = datetime.now(UTC)
    checkpoint = Checkpoint(
        path=CheckpointPath(run=RunId(f"{session}:train:0"), kind=CheckpointKind.SAMPLER_WEIGHTS, name="brief"),
        tenant=tenant,
        key=named.policy,
        op=OpId("saved"),
        size_bytes=1,
        created_at=now,
        expires_at=now,
    )
    catalog.publish_checkpoint(checkpoint, overwrite=False)
    waiting = sample_of(named)
    ledger.append(waiting, Bell(op=waiting.id, queue="q", task="t", summary=""))
    expire(catalog, ledger, depot)
    assert depot.has_folder(named.policy)
    late = replace(waiting, number=1, id=OpId("late"))
    with pytest.raises(WeightsRemoved):
        ledger.append(late, Bell(op=late.id, queue="q", task="t", summary=""))
    held = ledger.claim(waiting.id)
    assert held is not None
    ledger.done(held, RunCreated(run=RunId("any")))
    expire(catalog, ledger, depot)
    assert not depot.has_folder(named.policy)
    assert catalog.sampler(tenant, named.id).removed
    with pytest.raises(WeightsRemoved):
        ledger.append(late, Bell(op=late.id, queue="q", task="t", summary=""))


def test_checkpoints_with_samples_under_way_do_not_keep_others_from_expiring(
    catalog: Catalog, depot: FsspecDepot, tenant: TenantId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "AT_MOST", 2)
    ledger = MemoryLedger(lambda bell: None)
    session, run = begin(catalog, tenant)
    now = datetime.now(UTC)
    for number in range(7):
        key = DepotKey(f"checkpoints/{number}")
        depot.put_folder(key, {"adapter": b"x"})
        path = CheckpointPath(run=run, kind=CheckpointKind.SAMPLER_WEIGHTS, name=f"c{number}")
        checkpoint = Checkpoint(
            path=path,
            tenant=tenant,
            key=key,
            op=OpId(f"saved-{number}"),
            size_bytes=1,
            created_at=now,
            expires_at=now - timedelta(seconds=10 - number),
        )
        catalog.publish_checkpoint(checkpoint, overwrite=False)
        if number < 4:
            sampler = Sampler(
                id=SamplerId(f"{session}:sample:{number}"),
                tenant=tenant,
                session=session,
                base_model="tiny",
                requested_model="tiny",
                policy=key,
            )
            op = replace(sample_of(sampler), id=OpId(f"sample-{number}"))
            ledger.append(op, Bell(op=op.id, queue="q", task="t", summary=""))
    for left in (5, 4):
        expire(catalog, ledger, depot)
        assert sum(depot.has_folder(f"checkpoints/{number}") for number in range(7)) == left
    assert [each.path.name for each in catalog.expired_checkpoints(9)] == ["c0", "c1", "c2", "c3"]


def live(ledger: MemoryLedger, depot: FsspecDepot, catalog: Catalog, tenant: TenantId, name: str) -> SessionId:
    """A session with a run in a snapshot, an unnamed policy, and a sampler of a checkpoint."""
    session, run = begin(catalog, tenant)
    op_id = OpId(f"create {name}")
    op = TrainOp(id=op_id, tenant=tenant, run=run, turn=0, action=CreateRun(base_model="tiny", lora=LoraSpec(rank=4)))
    ledger.append(op, Bell(op=op_id, queue="q", task="t", summary=""))
    held = ledger.claim(op_id)
    assert held is not None
    assert held.lease is not None
    ledger.done(held, RunCreated(run=run))
    for folder in ("snapshots", "policies", "checkpoints"):
        depot.put_folder(f"{folder}/{name}", {"adapter": b"x"})
    ledger.snapshotted(held.lease, 0, DepotKey(f"snapshots/{name}"))
    for number, folder in enumerate(("policies", "checkpoints")):
        sampler = Sampler(
            id=SamplerId(f"{session}:sample:{number}"),
            tenant=tenant,
            session=session,
            base_model="tiny",
            requested_model="tiny",
            policy=DepotKey(f"{folder}/{name}"),
        )
        catalog.add_sampler(sampler)
    return session


def test_a_finished_session_keeps_its_checkpoints_only(catalog: Catalog, depot: FsspecDepot, tenant: TenantId) -> None:
    ledger = MemoryLedger(lambda bell: None)
    over, going_on = (live(ledger, depot, catalog, tenant, name) for name in ("over", "goingon"))
    catalog.finish_session(tenant, over, "success", None)
    for _ in range(2):
        release(catalog, ledger, depot, AT_ONCE)
        assert not depot.has_folder("snapshots/over")
        assert not depot.has_folder("policies/over")
        assert depot.has_folder("checkpoints/over")
        for folder in ("snapshots", "policies", "checkpoints"):
            assert depot.has_folder(f"{folder}/goingon"), going_on


def test_a_sampler_of_a_session_that_is_over_says_that_its_weights_are_gone(
    catalog: Catalog, depot: FsspecDepot, tenant: TenantId
) -> None:
    ledger = MemoryLedger(lambda bell: None)
    session = live(ledger, depot, catalog, tenant, "over")
    unnamed, named = (catalog.sampler(tenant, id) for id in catalog.session_samplers(tenant, session))
    waiting = sample_of(unnamed)
    ledger.append(waiting, Bell(op=waiting.id, queue="q", task="t", summary=""))
    catalog.finish_session(tenant, session, "success", None)
    release(catalog, ledger, depot, AT_ONCE)
    assert depot.has_folder("policies/over"), "a sample of it is under way"
    held = ledger.claim(waiting.id)
    assert held is not None
    ledger.done(held, RunCreated(run=RunId("any")))
    release(catalog, ledger, depot, AT_ONCE)
    assert not depot.has_folder("policies/over")
    assert [catalog.sampler(tenant, each.id).removed for each in (unnamed, named)] == [True, False]
    late = replace(sample_of(unnamed), number=1, id=OpId("late"))
    with pytest.raises(WeightsRemoved):
        ledger.append(late, Bell(op=late.id, queue="q", task="t", summary=""))


def sample_of(sampler: Sampler) -> SampleOp:
    action = Sample(
        base_model="tiny",
        policy=sampler.policy,
        prompt=Tensor(dtype=DType.INT32, shape=(1,), data=bytes(4)),
        num_samples=1,
        params=SamplingParams(max_tokens=1),
    )
    return SampleOp(id=OpId("sample"), tenant=sampler.tenant, sampler=sampler.id, number=0, action=action)


def test_a_silent_session_is_over_after_its_time_and_one_with_ops_under_way_is_not(
    catalog: Catalog, depot: FsspecDepot, tenant: TenantId
) -> None:
    ledger = MemoryLedger(lambda bell: None)
    session = live(ledger, depot, catalog, tenant, "quiet")
    run = RunId(f"{session}:train:0")
    op = TrainOp(
        id=OpId("next"), tenant=tenant, run=run, turn=1, action=CreateRun(base_model="tiny", lora=LoraSpec(rank=4))
    )
    ledger.append(op, Bell(op=op.id, queue="q", task="t", summary=""))
    at_once = Retention(silent_seconds=1e-6)
    release(catalog, ledger, depot, AT_ONCE)
    release(catalog, ledger, depot, at_once)
    assert depot.has_folder("snapshots/quiet")
    held = ledger.claim(op.id)
    assert held is not None
    ledger.done(held, RunCreated(run=run))
    release(catalog, ledger, depot, AT_ONCE)
    assert depot.has_folder("snapshots/quiet"), "its client was seen a moment ago"
    release(catalog, ledger, depot, at_once)
    assert not depot.has_folder("snapshots/quiet")
