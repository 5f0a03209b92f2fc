import io
import json

import pytest
from rich.console import Console

from openrl.cli import ops, queues
from openrl.cli.errors import NotReached, NotServing
from openrl.cli.text import span
from openrl.config import Settings
from openrl.gateway.doubles import toy_gateway
from queues.lanes import REWARD_LINE

OWN = {"waiting": 840, "running": 16, "oldest_seconds": 75.0, "seconds": 190.0}
QUEUE = {"queue": "sample.tiny-1", "kind": "sample", "model": "tiny", "workers": 1, "slots": 32}
EMPTY = {"queue": "reward", "kind": "reward", "model": None, "workers": 0, "slots": 0, "waiting": 0, "running": 0}


def lines(shown) -> list[list[str]]:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(shown)
    return [line.split() for line in console.export_text().splitlines()]


def test_a_row_for_each_queue_and_what_is_ones_own_behind_it() -> None:
    nothing = dict.fromkeys(OWN, 0) | {"oldest_seconds": None, "seconds": None}
    found = [QUEUE | {"waiting": 1840, "running": 32, "own": OWN}, EMPTY | {"own": nothing}]
    header, sample, reward = lines(queues.table(found))
    assert header[:6] == ["queue", "model", "workers", "slots", "running", "waiting"]
    assert sample == ["sample", "tiny", "1", "32", "32", "1,840", "16", "840", "75", "s", "3", "min"]
    assert reward == ["reward", "none", *["·"] * 7]


def test_a_row_for_each_tenant_where_they_are_told() -> None:
    found = [QUEUE | {"waiting": 841, "running": 16, "tenants": [{"tenant": "alice"} | OWN]}]
    _, sample, alice = lines(queues.table(found))
    assert sample == ["sample", "tiny", "1", "32", "16", "841"]
    assert alice == ["alice", "16", "840", "75", "s", "3", "min"]


def test_what_is_told_to_programs_is_what_the_gateway_says(capsys: pytest.CaptureFixture[str]) -> None:
    queues.show([EMPTY], True)
    assert json.loads(capsys.readouterr().out) == [EMPTY]


@pytest.fixture
def gateway(tmp_path, monkeypatch):
    for name in ("OPENRL_BASE_URL", "OPENRL_API_KEY", "TINKER_BASE_URL", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with toy_gateway(tmp_path) as up:
        yield up


def test_a_service_is_asked_by_address_or_where_one_is_served_here(gateway, tmp_path, monkeypatch) -> None:
    settings = Settings(data_dir=tmp_path)
    with pytest.raises(NotServing):
        queues.of_one_tenant(settings, None)
    with pytest.raises(NotReached, match="no API key"):
        queues.of_one_tenant(settings, gateway.url)
    monkeypatch.setenv("TINKER_API_KEY", gateway.key)
    assert REWARD_LINE in {queue["queue"] for queue in queues.of_one_tenant(settings, gateway.url)}
    monkeypatch.delenv("TINKER_API_KEY")
    (tmp_path / "serve.json").write_text(json.dumps({"pid": 1, "url": gateway.url}))
    (tmp_path / "local_key").write_text(gateway.key + "\n")
    assert REWARD_LINE in {queue["queue"] for queue in queues.of_one_tenant(settings, None)}


def test_an_op_is_shown_in_the_order_of_what_happened(gateway, tmp_path, monkeypatch) -> None:
    from openrl.client import Client

    monkeypatch.setenv("TINKER_API_KEY", gateway.key)
    with Client(gateway.url, gateway.key) as client:
        client.score("length", ["a"])
    op = ops.asked(Settings(data_dir=tmp_path), gateway.url, gateway.worker.seen[-1].id)
    story = {name: str(said) for name, said in ops.story(op)}
    assert list(story) == ["op", "kind", "status", "appended", "queue", "claimed", "settled"]
    assert story["status"] == "done" and story["claimed"].startswith("once by here, 20")
    with pytest.raises(NotReached, match="no request 'never there'"):
        ops.asked(Settings(data_dir=tmp_path), gateway.url, "never there")


def test_what_an_op_waits_for_is_shown() -> None:
    after = {"count": 12, "ops": [{"op_id": f"m{number}", "status": "done"} for number in range(12)]}
    told = {
        "op_id": "o",
        "kind": "score_texts",
        "status": "waiting",
        "attempts": 2,
        "worker": None,
        "appended_at": "2026-01-02T03:04:05+00:00",
        "claimed_at": "2026-01-02T03:04:05+00:00",
        "settled_at": None,
        "age_seconds": 9.2,
        "rung_at": "2026-01-02T03:04:05+00:00",
        "rung_again": 2,
        "queue": "reward.0",
        "line": None,
        "waits_because": "no worker",
        "after": after,
    }
    story = ops.story(told)
    assert [str(said) for name, said in story if name == "after"][-2:] == ["m9 done", "and 2 more"]
    rung, why = (str(said) for name, said in story if name == "queue")
    assert rung.startswith("reward.0: rung 2026-01-") and rung.endswith(", 2 times again") and why == "no worker"
    assert dict(story)["claimed"].plain.startswith("2 times, the last, 2026")
    line = {"name": "reward", "ahead": 3, "seconds": 200.0}
    (where,) = [str(said) for name, said in ops.story(told | {"line": line, "rung_at": None}) if name == "queue"]
    assert where == "reward.0: in line reward, 3 of yours ahead, for about 3 min"
    over = told | {"settled_at": "2026-01-02T03:04:09+00:00", "waits_because": None, "rung_again": 0}
    assert [name for name, _ in ops.story(over)][-4:] == ["after", "queue", "claimed", "settled"]
    never = [str(said) for name, said in ops.story(over | {"rung_at": None}) if name == "queue"]
    assert never == ["reward.0: not rung"]
    gone = {"count": 1, "ops": [{"op_id": "m", "status": None}]}
    assert "m forgotten" in [str(said) for _, said in ops.story(told | {"after": gone})]


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, ""), (0.2, "1 s"), (75, "75 s"), (200, "3 min"), (8000, "2 h"), (2e5, "2 d")]
)
def test_a_span_has_one_unit(seconds, said) -> None:
    assert span(seconds) == said
