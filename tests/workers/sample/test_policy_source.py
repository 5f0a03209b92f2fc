import logging
from pathlib import Path
from uuid import uuid4

import pytest

from openrl.config import Sample, Settings
from openrl.depot.filesystem import FsspecDepot
from openrl.domain.ids import DepotKey
from workers.sample.policy_source import policy_source

KEY, FILES = DepotKey("policies/1"), {"a": b"1"}


def read_twice(depot: FsspecDepot, settings: Settings) -> bool:
    """Whether the second time goes without the depot."""
    depot.put_folder(KEY, FILES)
    fetch, _ = policy_source(depot, settings)
    assert fetch(KEY) == FILES
    depot.delete_folder(KEY)
    try:
        return fetch(KEY) == FILES
    except KeyError:
        return False


def test_a_depot_far_away_is_read_through_a_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert read_twice(FsspecDepot(f"memory://{uuid4().hex}"), Settings(data_dir=tmp_path))
    assert f"kept in {tmp_path / 'policy-cache'}, up to 4096 MB" in caplog.text


def test_a_depot_on_the_same_disk_is_read_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(data_dir=tmp_path)
    with caplog.at_level(logging.INFO):
        assert not read_twice(FsspecDepot(settings.depot_at), settings)
    assert "read from the depot: it lies on the disk that a cache would lie on" in caplog.text
    assert not (tmp_path / "policy-cache").exists()


def test_a_cache_of_no_size_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(data_dir=tmp_path, sample=Sample(policy_cache_mb=0))
    with caplog.at_level(logging.INFO):
        assert not read_twice(FsspecDepot(f"memory://{uuid4().hex}"), settings)
    assert "OPENRL_SAMPLE__POLICY_CACHE_MB is 0" in caplog.text
