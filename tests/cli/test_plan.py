import sys
from pathlib import Path

import pytest

from openrl.cli.broker import Broker
from openrl.cli.plan import Choices, base_url, broker_component, components
from openrl.config import Gateway, Metrics, Settings, Worker

SETTINGS = Settings(data_dir=Path("/data"), redis_url="redis://127.0.0.1:1/0", base_model="tiny", flower_port=5556)


def _names(choices: Choices) -> list[str]:
    return [component.name for component in components(SETTINGS, choices, {}, "tml-x")]


def test_one_machine_runs_one_worker_for_training_and_sampling() -> None:
    assert _names(Choices()) == ["gateway", "device worker", "reward worker", "flower"]


def test_training_and_sampling_can_be_separate() -> None:
    assert _names(Choices(separate=True, flower=False)) == ["gateway", "train worker", "sample worker", "reward worker"]


def test_workers_are_stopped_first_and_the_broker_last() -> None:
    broker = Broker(program="x", port=1, password="p", folder=Path("/data/broker"))
    everybody = [broker_component(broker, SETTINGS, {}), *components(SETTINGS, Choices(), {}, "tml-x")]
    order = [component.name for component in sorted(everybody, key=lambda component: component.stop_rank)]
    assert order == ["device worker", "reward worker", "gateway", "flower", "broker"]


def test_components_run_in_the_same_python_and_are_told_all_by_environment() -> None:
    gateway, worker, *_ = components(SETTINGS, Choices(), {}, "tml-x")
    assert gateway.command == (sys.executable, "-m", "openrl.cli.main", "gateway")
    assert worker.command == (sys.executable, "-m", "openrl.cli.main", "worker", "device")
    assert worker.env["OPENRL_REDIS_URL"] == "redis://127.0.0.1:1/0"


def test_workers_tell_of_operations_only_where_flower_listens() -> None:
    for flower in (True, False):
        worker = components(SETTINGS, Choices(flower=flower), {}, "tml-x")[1]
        assert worker.env["OPENRL_WORKER__EVENTS"] == str(flower)


def test_each_component_tells_its_metrics_on_a_port_of_its_own() -> None:
    settings = SETTINGS.model_copy(update={"metrics": Metrics(port=9400)})
    parts = components(settings, Choices(flower=False), {}, "tml-x")
    assert [part.env["OPENRL_METRICS__PORT"] for part in parts] == ["9400", "9401", "9402"]
    assert {part.env["OPENRL_METRICS__PORT"] for part in components(SETTINGS, Choices(flower=False), {}, "x")} == {"0"}


def test_a_worker_is_not_killed_while_it_drains() -> None:
    settings = SETTINGS.model_copy(update={"worker": Worker(drain_seconds=30.0)})
    assert components(settings, Choices(), {}, "tml-x")[1].grace_seconds == 40.0


def test_flower_listens_on_this_machine_only() -> None:
    flower = components(SETTINGS, Choices(), {}, "tml-x")[-1]
    assert flower.command[1:] == (
        *("-m", "celery", "-A", "queues.app", "flower", "--address=127.0.0.1"),
        "--port=5556",
    )


def test_the_broker_gets_none_of_our_secrets_in_its_environment() -> None:
    broker = Broker(program="x", port=1, password="p", folder=Path("/data/broker"))
    component = broker_component(broker, SETTINGS, {"OPENRL_API_KEY": "tml-x", "PATH": "/bin"})
    assert dict(component.env) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:8000"), ("::", "http://[::1]:8000"), ("10.1.2.3", "http://10.1.2.3:8000")],
)
def test_clients_are_given_an_address_they_can_reach(host: str, url: str) -> None:
    assert base_url(SETTINGS.model_copy(update={"gateway": Gateway(host=host)})) == url


def test_there_can_be_several_workers_of_a_kind_each_with_a_name_and_a_log() -> None:
    assert _names(Choices(device_workers=3, flower=False)) == [
        *("gateway", "device worker", "device worker 2", "device worker 3", "reward worker"),
    ]
    several = components(SETTINGS, Choices(separate=True, train_workers=2, sample_workers=2, flower=False), {}, "tml-x")
    assert [component.name for component in several[1:]] == [
        *("train worker", "train worker 2", "sample worker", "sample worker 2", "reward worker"),
    ]
    assert len({component.log for component in several}) == len(several)


def test_each_base_model_has_workers_of_its_own() -> None:
    choices = Choices(base_models=("tiny", "org/other"), device_workers=2, flower=False)
    _gateway, *workers = components(SETTINGS, choices, {}, "tml-x")
    assert [(worker.name, worker.address) for worker in workers] == [
        ("device worker", "tiny"),
        ("device worker 2", "tiny"),
        ("device worker 3", "org/other"),
        ("device worker 4", "org/other"),
        ("reward worker", ""),
    ]
    assert [worker.env["OPENRL_BASE_MODEL"] for worker in workers[:4]] == ["tiny", "tiny", "org/other", "org/other"]
    assert len({worker.log for worker in workers}) == 5
