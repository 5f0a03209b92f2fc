from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from openrl.catalog.repository import Catalog
from openrl.depot.filesystem import FsspecDepot
from openrl.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointPath
from openrl.domain.ids import DepotKey, OpId, RunId
from openrl.domain.run import LoraSpec, Run
from workers.expiry import expire


def test_bytes_and_row_of_an_expired_checkpoint_go_and_others_stay(tmp_path: Path) -> None:
    catalog, depot = Catalog(f"sqlite:///{tmp_path / 'catalog.db'}"), FsspecDepot(f"file://{tmp_path / 'depot'}")
    catalog.migrate()
    key, _ = catalog.create_key("anna")
    session = catalog.create_session(
        key.tenant, tags=[], user_metadata={}, display_name=None, sdk_version="test", project_id=None
    )
    now = datetime.now(UTC)
    run = Run(
        id=RunId(f"{session}:train:0"),
        tenant=key.tenant,
        session=session,
        base_model="tiny",
        requested_model="tiny",
        lora=LoraSpec(rank=4),
        created_at=now,
        last_request_at=now,
    )
    catalog.add_run(run)
    for name, left in (("old", -1), ("new", 3600), ("kept", None)):
        depot.put_folder(f"checkpoints/{name}", {"adapter": b"x"})
        path = CheckpointPath(run=run.id, kind=CheckpointKind.WEIGHTS, name=name)
        checkpoint = Checkpoint(
            path=path,
            tenant=key.tenant,
            key=DepotKey(f"checkpoints/{name}"),
            op=OpId(name),
            size_bytes=1,
            created_at=now,
            expires_at=None if left is None else now + timedelta(seconds=left),
        )
        catalog.publish_checkpoint(checkpoint, overwrite=False)
    for _ in range(2):
        expire(catalog, depot)
        with pytest.raises(KeyError):
            depot.get_folder("checkpoints/old")
        assert {each.path.name for each in catalog.run_checkpoints(key.tenant, run.id)} == {"new", "kept"}
        assert depot.has_folder("checkpoints/new")
    catalog.close()
