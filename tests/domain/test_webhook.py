"""Where webhooks may post, and how they are signed."""

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.webhook import require_allowed, signature, target_of

ALLOWED = ("https://rewards.example.com/v1", "https://other.example.com:8443/", "http://127.0.0.1:9000/a/")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://rewards.example.com/v1", "https://rewards.example.com/v1"),
        ("https://rewards.example.com:443/v1/math?k=1", "https://rewards.example.com/v1/math"),
        ("HTTPS://Rewards.Example.COM./v1/", "https://rewards.example.com/v1/"),
        ("https://other.example.com:8443", "https://other.example.com:8443/"),
        ("http://127.0.0.1:9000/a/b", "http://127.0.0.1:9000/a/b"),
    ],
)
def test_a_url_that_begins_like_an_allowed_one_is_posted_to(url: str, told: str) -> None:
    assert str(require_allowed(url, "params.url", ALLOWED)) == told


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "https:///v1",
        "rewards.example.com/v1",
        "ftp://rewards.example.com/v1",
        "http://rewards.example.com/v1",
        "https://rewards.example.com",
        "https://rewards.example.com/v10",
        "https://rewards.example.com:444/v1",
        "https://rewards.example.com.evil.com/v1",
        "https://evil.com/rewards.example.com/v1",
        "https://rewards.example.com@evil.com/v1",
        "https://evil.com:1@rewards.example.com/v1",
        "https://evil.com#@rewards.example.com/v1",
        "https://evil.com\\@rewards.example.com/v1",
        "https://rewards.example.com/v1/../admin",
        "https://rewards.example.com/v1/./x",
        "https://rewards.example.com/v1/%2e%2e/admin",
        "https://rewards.example.com/v1/..%2Fadmin",
        "https://rewards.example.com/v1/\nHost: evil.com",
        "https://rewards.example.com/v1 ",
        "https://rewards.exämple.com/v1",
        "https://rewards.example.com:port/v1",
        "https://[::1/v1",
        "http://127.0.0.1:9000/ab",
        "http://127.0.0.1/a/",
        "http://localhost:9000/a/",
        "http://127.1:9000/a/",
        "http://2130706433:9000/a/",
        "https://rewards.example.com/v1/" + "a" * 2000,
    ],
)
def test_every_other_url_is_refused_by_its_field(url: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        require_allowed(url, "rewards[0].params.url", ALLOWED)
    assert caught.value.field == "rewards[0].params.url"


def test_nothing_is_allowed_where_nothing_is_listed() -> None:
    with pytest.raises(FieldInvalid, match="not among the URLs that the operator allows"):
        require_allowed("https://rewards.example.com/v1", "params.url", ())


def test_secrets_of_a_query_are_not_told() -> None:
    assert "secret" not in str(target_of("https://a.example.com/b?secret=1"))
    assert str(target_of("http://[::1]:81/")) == "http://[::1]:81/"


def test_the_signature_is_of_time_and_body() -> None:
    whole = signature(b"k" * 16, "1700000000", b"{}")
    assert whole == "6d58fb78491a4cd45b0a5944663cf2020c2185a67defd8caec14059846f09e3d"
    others = {signature(b"k" * 16, "1700000001", b"{}"), signature(b"k" * 16, "1700000000", b"[]")}
    assert whole not in others | {signature(b"l" * 16, "1700000000", b"{}")}
