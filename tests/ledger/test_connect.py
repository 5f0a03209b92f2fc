"""The client of the ledger's Redis."""

import pytest

from openrl.domain.errors import SettingInvalid
from openrl.ledger.connect import connect


@pytest.mark.parametrize("url", ["host:6379", "http://host", "redis://:pass/word@host:6379/0"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingInvalid, match="OPENRL_REDIS_URL: is no URL of a broker") as refused:
        connect(url, retries=0, longest_pause_seconds=0)
    assert "pass/word" not in str(refused.value) and "'pass'" not in str(refused.value)
    assert "%2F" in str(refused.value)


@pytest.mark.parametrize(
    ("query", "told"), [("ssl_cert_reqs=CERT_NONE", "CERT_NONE"), ("ssl_ca_cert=/f", "ssl_ca_cert")]
)
def test_arguments_that_cannot_be_are_refused_before_anything_waits(query: str, told: str) -> None:
    with pytest.raises(SettingInvalid, match=told):
        connect(f"rediss://:p@host:6379/0?{query}", retries=0, longest_pause_seconds=0)


@pytest.mark.parametrize("query", ["", "?ssl_cert_reqs=none", "?ssl_ca_certs=/trust/ca.crt&ssl_check_hostname=false"])
def test_a_url_with_tls_is_taken_and_connects_to_nothing(query: str) -> None:
    connect(f"rediss://:p%2F@host:6379/0{query}", retries=0, longest_pause_seconds=0).close()


def test_every_thread_of_a_large_worker_gets_a_connection() -> None:
    pool = connect("redis://127.0.0.1:1", retries=0, longest_pause_seconds=0.1).connection_pool
    assert len([pool.make_connection() for _ in range(300)]) == 300
