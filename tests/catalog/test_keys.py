import re
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from openrl.catalog.repository import Catalog
from openrl.domain.errors import FieldInvalid, KeyNotFound, KeyRejected


def test_a_made_key_opens_its_tenant(catalog: Catalog) -> None:
    key, secret = catalog.create_key("mine")
    assert re.fullmatch(r"tml-[A-Za-z0-9_-]{32}", secret)
    assert catalog.tenant_of_key(secret) == key.tenant
    assert catalog.key_of(secret) == key
    assert (key.tenant_name, key.prefix) == ("mine", secret[:8])


def test_keys_of_one_name_share_a_tenant_and_other_names_do_not(catalog: Catalog) -> None:
    first, second, other = (catalog.create_key(name)[0] for name in ("mine", "mine", "theirs"))
    assert first.tenant == second.tenant != other.tenant
    assert catalog.keys() == [first, second, other]


def test_the_secret_is_nowhere_in_the_database(catalog: Catalog) -> None:
    _, secret = catalog.create_key("mine")
    with catalog._database.reading() as connection:
        row = connection.execute(text("SELECT * FROM api_keys")).one()
    assert not any(secret in str(value) for value in row)
    assert len(row.digest) == 64


def test_the_same_given_key_is_made_once(catalog: Catalog) -> None:
    first, secret = catalog.create_key("mine", key="tml-chosen-by-the-operator")
    again, _ = catalog.create_key("mine", key="tml-chosen-by-the-operator")
    assert secret == "tml-chosen-by-the-operator"
    assert first == again
    assert catalog.keys() == [first]


def test_a_given_key_cannot_move_to_another_tenant(catalog: Catalog) -> None:
    mine, secret = catalog.create_key("mine", key="tml-chosen-by-the-operator")
    with pytest.raises(FieldInvalid, match="key: belongs to tenant 'mine'"):
        catalog.create_key("theirs", key=secret)
    assert catalog.tenant_of_key(secret) == mine.tenant


@pytest.mark.parametrize("given", ["", "tml-", "sk-abc", "tml-a b", "tml-ä"])
def test_a_given_key_that_the_sdk_would_not_send_is_refused(catalog: Catalog, given: str) -> None:
    with pytest.raises(FieldInvalid, match=r"^key: "):
        catalog.create_key("mine", key=given)


def test_a_short_given_key_is_not_shown_in_the_list(catalog: Catalog) -> None:
    catalog.create_key("mine", key="tml-test")
    assert catalog.keys()[0].prefix == "tml-"


def test_rejection_tells_unknown_revoked_and_expired_apart(catalog: Catalog) -> None:
    revoked, revoked_secret = catalog.create_key("mine")
    _, expired_secret = catalog.create_key("mine", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    catalog.revoke_key(revoked.id)
    for secret, why in ((revoked_secret, "revoked"), (expired_secret, "expired"), ("tml-guess", "unknown")):
        with pytest.raises(KeyRejected, match=why):
            catalog.tenant_of_key(secret)


def test_a_key_works_until_it_expires(catalog: Catalog) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    key, secret = catalog.create_key("mine", expires_at=end)
    assert catalog.key_of(secret).expires_at == key.expires_at == end


def test_revoking_twice_keeps_the_first_time_and_an_absent_key_is_named(catalog: Catalog) -> None:
    key, _ = catalog.create_key("mine")
    catalog.revoke_key(key.id)
    (first,) = catalog.keys()
    catalog.revoke_key(key.id)
    assert catalog.keys() == [first]
    assert first.revoked_at is not None
    with pytest.raises(KeyNotFound, match="99"):
        catalog.revoke_key(99)
