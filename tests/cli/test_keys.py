from pathlib import Path

import pytest

from openrl.cli import keys
from openrl.config import Settings
from openrl.domain.errors import KeyNotFound, KeyRejected, SettingInvalid


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


def test_a_created_key_is_listed_without_its_secret(settings: Settings) -> None:
    secret = keys.create(settings, "alice", expires_days=3)
    text = keys.listed(settings)
    assert "alice" in text
    assert secret not in text


def test_a_revoked_key_is_refused(settings: Settings) -> None:
    secret = keys.create(settings, "alice", None)
    keys.revoke(settings, 1)
    with pytest.raises(KeyRejected):
        keys.opened(settings).tenant_of_key(secret)
    with pytest.raises(KeyNotFound):
        keys.revoke(settings, 99)


def test_the_local_key_is_known_to_the_catalog_at_every_start(settings: Settings) -> None:
    first = keys.local_key(settings, None)
    assert keys.local_key(settings, None) == first
    keys.opened(settings).tenant_of_key(first)


def test_a_local_key_that_was_revoked_is_replaced(settings: Settings) -> None:
    first = keys.local_key(settings, None)
    keys.revoke(settings, 1)
    second = keys.local_key(settings, None)
    assert second != first
    assert keys.local_key(settings, None) == second


def test_a_given_key_that_was_revoked_is_refused(settings: Settings) -> None:
    keys.local_key(settings, "tml-mine")
    keys.revoke(settings, 1)
    with pytest.raises(KeyRejected):
        keys.local_key(settings, "tml-mine")


def test_migrating_makes_the_tables_and_the_first_key(settings: Settings) -> None:
    assert keys.migrate(settings, None, None) == "the catalog is up to date"
    assert keys.migrate(settings, "admin", "tml-" + "k" * 20).endswith("of admin is known")
    assert keys.migrate(settings, "admin", "tml-" + "k" * 20).endswith("of admin is known"), "again at every upgrade"
    keys.opened(settings).tenant_of_key("tml-" + "k" * 20)


def test_migrating_leaves_a_revoked_key_revoked(settings: Settings) -> None:
    keys.migrate(settings, "admin", "tml-" + "k" * 20)
    keys.revoke(settings, 1)
    assert keys.migrate(settings, "admin", "tml-" + "k" * 20).endswith("was revoked and stays so")
    with pytest.raises(KeyRejected):
        keys.opened(settings).tenant_of_key("tml-" + "k" * 20)


def test_migrating_for_a_tenant_needs_its_key(settings: Settings) -> None:
    with pytest.raises(SettingInvalid, match="OPENRL_API_KEY: is not set"):
        keys.migrate(settings, "admin", None)
