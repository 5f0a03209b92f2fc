from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from openrl.catalog.repository import Catalog
from openrl.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointPath
from openrl.domain.errors import CheckpointExists, CheckpointMissing, RunNotFound
from openrl.domain.ids import DepotKey, RunId, TenantId

Make = Callable[..., Checkpoint]


def publish(catalog: Catalog, checkpoint: Checkpoint, *, overwrite: bool = False) -> DepotKey | None:
    return catalog.publish_checkpoint(checkpoint, overwrite=overwrite)


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def test_a_checkpoint_reads_back_as_it_was_published(catalog: Catalog, a_checkpoint: Make) -> None:
    made = a_checkpoint(expires_at=ago(-60))
    assert publish(catalog, made) is None
    assert catalog.checkpoint(made.tenant, made.path) == made


def test_a_taken_name_is_refused_without_overwrite(catalog: Catalog, a_checkpoint: Make) -> None:
    first = a_checkpoint(op="op-1")
    publish(catalog, first)
    with pytest.raises(CheckpointExists, match="0001 exists already"):
        publish(catalog, a_checkpoint(op="op-2"))
    assert catalog.checkpoint(first.tenant, first.path) == first


def test_overwriting_answers_the_key_that_is_no_longer_needed(catalog: Catalog, a_checkpoint: Make) -> None:
    publish(catalog, a_checkpoint(op="op-1"))
    second = replace(a_checkpoint(op="op-2"), user_metadata={})
    assert publish(catalog, second, overwrite=True) == "checkpoints/op-1"
    assert catalog.checkpoint(second.tenant, second.path) == second


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_same_operation_again_changes_nothing(catalog: Catalog, a_checkpoint: Make, overwrite: bool) -> None:
    made = a_checkpoint()
    publish(catalog, made, overwrite=overwrite)
    assert publish(catalog, replace(made, size_bytes=7), overwrite=overwrite) is None
    assert catalog.checkpoint(made.tenant, made.path) == made


def test_an_expired_checkpoint_reads_as_missing_and_does_not_block_its_name(
    catalog: Catalog, a_checkpoint: Make
) -> None:
    old = a_checkpoint(op="op-1", expires_at=ago(1))
    publish(catalog, old)
    for ask in (
        lambda: catalog.checkpoint(old.tenant, old.path),
        lambda: catalog.delete_checkpoint(old.tenant, old.path),
        lambda: catalog.set_checkpoint_ttl(old.tenant, old.path, None),
    ):
        with pytest.raises(CheckpointMissing):
            ask()
    assert catalog.checkpoints(old.tenant, 10, 0) == ([], 0)
    assert catalog.run_checkpoints(old.tenant, old.path.run) == []
    new = a_checkpoint(op="op-2")
    assert publish(catalog, new) == old.key
    assert catalog.checkpoint(new.tenant, new.path) == new


def test_kinds_have_names_of_their_own(catalog: Catalog, a_checkpoint: Make) -> None:
    both = [a_checkpoint(op=kind, kind=kind) for kind in CheckpointKind]
    for checkpoint in both:
        publish(catalog, checkpoint)
    assert {found.path.kind for found in catalog.run_checkpoints(both[0].tenant, both[0].path.run)} == set(
        CheckpointKind
    )


def test_another_tenants_checkpoint_looks_as_if_it_were_absent(
    catalog: Catalog, a_checkpoint: Make, stranger: TenantId
) -> None:
    made = a_checkpoint()
    publish(catalog, made)
    for path in (made.path, replace(made.path, name="absent")):
        for ask in (
            lambda path: catalog.checkpoint(stranger, path),
            lambda path: catalog.delete_checkpoint(stranger, path),
            lambda path: catalog.set_checkpoint_ttl(stranger, path, 3600),
        ):
            with pytest.raises(CheckpointMissing) as error:
                ask(path)
            assert str(error.value) == f"path: no checkpoint '{path}'"
    assert catalog.run_checkpoints(stranger, made.path.run) == []
    assert catalog.checkpoints(stranger, 10, 0) == ([], 0)
    assert catalog.checkpoint(made.tenant, made.path) == made


def test_a_checkpoint_needs_a_run_of_its_own_tenant(catalog: Catalog, a_checkpoint: Make, stranger: TenantId) -> None:
    made = a_checkpoint()
    nowhere = CheckpointPath(run=RunId("absent"), kind=made.path.kind, name="x")
    for wrong in (replace(made, tenant=stranger), replace(made, path=nowhere)):
        with pytest.raises(RunNotFound):
            publish(catalog, wrong)
    publish(catalog, made)
    with pytest.raises(CheckpointMissing):
        publish(catalog, replace(made, tenant=stranger), overwrite=True)


def test_deleting_answers_the_key_once(catalog: Catalog, a_checkpoint: Make) -> None:
    made = a_checkpoint()
    publish(catalog, made)
    assert catalog.delete_checkpoint(made.tenant, made.path) == made.key
    with pytest.raises(CheckpointMissing):
        catalog.delete_checkpoint(made.tenant, made.path)


def test_a_time_to_live_counts_from_now_and_can_be_taken_off(catalog: Catalog, a_checkpoint: Make) -> None:
    made = a_checkpoint()
    publish(catalog, made)
    catalog.set_checkpoint_ttl(made.tenant, made.path, 3600)
    end = catalog.checkpoint(made.tenant, made.path).expires_at
    assert end is not None
    assert abs(end - ago(-3600)) < timedelta(seconds=30)
    catalog.set_checkpoint_ttl(made.tenant, made.path, None)
    assert catalog.checkpoint(made.tenant, made.path) == made


def test_checkpoints_come_newest_first_in_pages_with_their_number(catalog: Catalog, a_checkpoint: Make) -> None:
    made = [replace(a_checkpoint(f"{n:04}", op=f"op-{n}"), created_at=ago(60 - n)) for n in range(5)]
    for checkpoint in made:
        publish(catalog, checkpoint)
    tenant = made[0].tenant
    assert catalog.checkpoints(tenant, 3, 0) == (made[:1:-1], 5)
    assert catalog.checkpoints(tenant, 3, 3) == (made[1::-1], 5)
    assert catalog.run_checkpoints(tenant, made[0].path.run) == made


def test_the_expired_can_be_found_and_forgotten_but_not_what_took_their_place(
    catalog: Catalog, a_checkpoint: Make
) -> None:
    old = [a_checkpoint(f"{n}", op=f"op-{n}", expires_at=ago(60 - n)) for n in range(2)]
    for checkpoint in (*old, a_checkpoint("living")):
        publish(catalog, checkpoint)
    assert catalog.expired_checkpoints(10) == old
    assert catalog.expired_checkpoints(1) == old[:1]
    new = a_checkpoint("0", op="op-new")
    publish(catalog, new)
    for checkpoint in old:
        catalog.forget_checkpoint(checkpoint)
    assert catalog.expired_checkpoints(10) == []
    assert catalog.checkpoint(new.tenant, new.path) == new
