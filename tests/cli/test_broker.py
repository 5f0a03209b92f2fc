import os
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from openrl.cli import broker as brokers
from openrl.cli.broker import Broker, choose, configuration, find_program
from openrl.cli.child import Child, Component, start, stop
from openrl.cli.errors import BrokerMissing
from openrl.cli.probes import broker_answers, connect
from openrl.cli.serve import _withdraw_others
from openrl.domain.ids import WorkerId
from openrl.domain.model import ModelCard
from openrl.domain.worker import Role, WorkerInfo
from openrl.ledger.roster import RedisRoster


def _broker(folder: Path = Path("/data/broker"), password: str = "secret") -> Broker:
    return Broker(program="/bin/valkey-server", port=6400, password=password, folder=folder)


def test_the_command_line_does_not_show_the_password() -> None:
    assert _broker().command == ("/bin/valkey-server", "-")


def test_the_url_carries_password_and_port() -> None:
    assert _broker().url == "redis://:secret@127.0.0.1:6400/0"


def test_the_configuration_persists_every_write_and_evicts_nothing() -> None:
    lines = configuration(_broker()).splitlines()
    for line in ("port 6400", "bind 127.0.0.1", 'requirepass "secret"', "appendonly yes", "appendfsync everysec"):
        assert line in lines
    assert {'save ""', "maxmemory-policy noeviction", "daemonize no", 'dir "/data/broker"'} <= set(lines)


def test_folders_with_spaces_and_quotes_are_quoted() -> None:
    assert r'dir "/my \"data\"/b"' in configuration(_broker(Path('/my "data"/b')))


def test_each_broker_has_a_password_of_its_own(tmp_path: Path) -> None:
    assert choose(tmp_path / "a").password != choose(tmp_path / "b").password


def test_without_any_server_program_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers.importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BrokerMissing, match=r"valkey-server or redis-server.*OPENRL_REDIS_URL"):
        find_program()


def test_a_server_on_the_path_is_taken_where_the_wheel_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "redis-server"
    program.touch(mode=0o755)
    monkeypatch.setattr(brokers.importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program() == str(program)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Broker, Component, list[Child]]]:
    """A broker that runs; who starts it again puts it into the list."""
    broker = choose(tmp_path / "broker")
    component = Component(
        name="broker",
        command=broker.command,
        env=dict(os.environ),
        stdin=configuration(broker),
        log=tmp_path / "broker.log",
        address="",
        is_ready=broker_answers(connect(broker.url)),
    )
    children = [start(component)]
    _wait(component, children[0])
    yield broker, component, children
    stop(children)


def _wait(component: Component, child: Child) -> None:
    deadline = time.monotonic() + 10
    while not component.is_ready(child.pid):
        assert time.monotonic() < deadline, component.log.read_text()
        time.sleep(0.02)


@pytest.mark.live
def test_it_comes_back_on_the_same_port_with_its_data(running: tuple[Broker, Component, list[Child]]) -> None:
    broker, component, children = running
    with connect(broker.url) as client:
        client.set("kept", "yes")
        time.sleep(0.05)
        os.kill(children[0].pid, signal.SIGKILL)
        children[0].process.wait()
        children.append(start(component))
        _wait(component, children[-1])
        assert client.get("kept") == b"yes"


@pytest.mark.live
def test_it_refuses_whoever_has_no_password(running: tuple[Broker, Component, list[Child]]) -> None:
    broker, _, _ = running
    with redis.Redis(port=broker.port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


@pytest.mark.live
def test_it_listens_on_this_machine_only(running: tuple[Broker, Component, list[Child]]) -> None:
    broker, _, _ = running
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", broker.port))  # free there, so it does not listen everywhere


@pytest.mark.live
def test_a_model_of_an_earlier_start_is_no_longer_served(running: tuple[Broker, Component, list[Child]]) -> None:
    broker, _, _ = running
    with connect(broker.url) as client:
        roster = RedisRoster(client)
        roster.announce(_worker("tiny", "other/model"), ttl_seconds=60)
        _withdraw_others(broker, "tiny")
        assert [card.name for card in roster.cards()] == ["tiny"]


def _worker(*models: str) -> WorkerInfo:
    cards = tuple(
        ModelCard(name=name, tokenizer_id=name, architecture="L", vocab_size=1, context_length=1) for name in models
    )
    return WorkerInfo(
        id=WorkerId("w"), role=Role.DEVICE, host="here", pid=1, cards=cards, slots=1, started_at=datetime.now(UTC)
    )
