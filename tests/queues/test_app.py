import ssl
from typing import Any

import pytest

from queues.app import make_app


@pytest.mark.parametrize(
    ("query", "trust"),
    [
        ("", {"ssl_cert_reqs": ssl.CERT_REQUIRED}),
        ("?ssl_ca_certs=/trust/ca.crt", {"ssl_ca_certs": "/trust/ca.crt"}),
        ("?ssl_cert_reqs=none", {"ssl_cert_reqs": ssl.CERT_NONE}),
    ],
)
def test_a_broker_with_tls_is_trusted_as_its_url_says_and_never_unasked(query: str, trust: dict[str, Any]) -> None:
    app = make_app(f"rediss://:p@host:6379/0{query}")
    assert app.connection().ssl == trust
    assert app.conf.broker_use_ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED, **trust}, "what Flower goes by"


def test_a_broker_without_tls_is_asked_without() -> None:
    assert not make_app("redis://:p@host:6379/0").connection().ssl
