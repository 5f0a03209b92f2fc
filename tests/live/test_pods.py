"""What the chart renders really starts: its preset for kind, containers as processes, and a client's loop on them."""

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import tinker

sys.path.insert(0, str(Path(__file__).parents[1] / "helm"))

from charting import Workload, rendered, workloads
from kombu.exceptions import OperationalError
from living import wait_for
from loops import greedy, train
from pods import Node
from postgres import postgres
from tls import before, certificate

import openrl
from openrl.domain.errors import LedgerUnreachable
from openrl.ledger.connect import connect
from openrl.ledger.outage import told_apart
from queues.app import make_app

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

KEY = "tml-" + "k" * 32
USER = "me:secret"
SECRETS = {"password": "p" * 24, "api-key": KEY, "flower": USER}


def works(*options: str) -> dict[str, Workload]:
    """By component."""
    return {work.component: work for work in workloads(rendered(*options, preset="kind"))}


def with_gateway(node: Node, works: dict[str, Workload], *others: str) -> None:
    """The broker, then the gateway and what else is named, all at once."""
    (valkey,) = node.start(works["valkey"])
    node.services["openrl-valkey:6379"] = f"127.0.0.1:{valkey.ports['6379']}"
    gateway, *_ = node.start(works["gateway"], *(works[name] for name in others))
    node.services["openrl-gateway:80"] = f"127.0.0.1:{gateway.ports['8000']}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"), SECRETS)
    try:
        with_gateway(node, works(), "device", "reward", "flower")
        yield node
    finally:
        node.stop()


def url(node: Node) -> str:
    return f"http://{node.services['openrl-gateway:80']}"


def test_a_loop_of_reinforcement_learning_runs_through_the_gateway(node: Node) -> None:
    service = tinker.ServiceClient(base_url=url(node), api_key=KEY)
    trainer = service.create_lora_training_client(base_model="tiny", rank=4, seed=1).result()
    assert train(trainer, steps=1)
    sampler = trainer.save_weights_and_get_sampling_client().result()
    with openrl.Client(url(node), KEY) as client:
        asked = {"max_tokens": 6, "temperature": 1.0}
        batch = client.rollouts.create(
            [[5, 6, 7], [8, 9]], sampler, group_size=4, sampling=asked, reward=[("length", 1.0, {"most": 4})]
        )
        groups = batch.results()
    assert [len(group.rollouts) for group in groups] == [4, 4], [group.dropped for group in groups]
    data = openrl.to_datums(groups, keep_flat=True)
    trainer.forward_backward(data, "importance_sampling").result()
    trainer.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
    assert greedy(trainer.save_weights_and_get_sampling_client().result())


def test_the_charts_own_test_passes(node: Node) -> None:
    assert "a gradient and an optimizer step" in node.run(works()["test"])


def test_pods_are_alive_and_ready_by_their_own_probes(node: Node) -> None:
    for pod in node.pods:
        if pod.work.document["kind"] in ("Deployment", "StatefulSet"):
            assert pod.passes("livenessProbe"), pod.work.name
            assert pod.passes("readinessProbe"), pod.work.name


def test_flower_asks_for_user_and_password(node: Node) -> None:
    (pod,) = (pod for pod in node.pods if pod.work.component == "flower")
    at = f"http://127.0.0.1:{pod.ports['5555']}/api/workers"
    assert httpx.get(at).status_code == 401
    assert httpx.get(at, auth=tuple(USER.split(":"))).status_code == 200


def test_the_series_that_scaling_asks_for_are_there(node: Node) -> None:
    (pod,) = (pod for pod in node.pods if pod.work.component == "gateway")
    told = httpx.get(f"http://127.0.0.1:{pod.ports['9464']}/metrics").text
    for series in ('kind="train",base_model="tiny"', 'kind="sample",base_model="tiny"', 'kind="reward",base_model=""'):
        kind, model = (each.partition("=")[2] for each in series.split(","))
        lines = [line for line in told.splitlines() if line.startswith("openrl_queue_demand{")]
        assert any(f"kind={kind}" in line and f"base_model={model}" in line for line in lines), lines


def test_the_reward_worker_has_the_level_that_the_chart_asks_for(node: Node) -> None:
    (pod,) = (pod for pod in node.pods if pod.work.component == "reward")
    assert "sandbox level: kernel" in pod.log.read_text()


def test_pods_that_are_told_to_stop_do_so_within_their_grace(node: Node) -> None:
    """The last of those with this node: nothing is left of it."""
    node.stop()
    for pod in node.pods:
        assert pod.process is not None
        assert pod.dead, pod.work.name
        assert pod.process.returncode in (0, -signal.SIGTERM), f"{pod.work.name}: {pod.log.read_text()}"


#: A database and a broker that are not the release's: the broker with a password and TLS, by an authority of its own.
OUTSIDE = {
    "catalog": {"existingSecret": "openrl", "key": "catalog-url"},
    "broker": {"external": True, "existingSecret": "openrl", "key": "broker-url"},
    "trust": {"existingSecret": "certificates"},
}


def test_a_loop_runs_on_a_database_and_a_broker_of_others(tmp_path: Path) -> None:
    with ExitStack() as closing:
        catalog_url = closing.enter_context(postgres())
        node = Node(tmp_path, {**SECRETS, "catalog-url": catalog_url})
        closing.callback(node.stop)
        (valkey,) = node.start(works()["valkey"])
        trusted, key = certificate(tmp_path)
        port = closing.enter_context(before(int(valkey.ports["6379"]), trusted, key))
        closing.callback(node.stop)  # while the broker can still be reached
        node.secrets["broker-url"] = f"rediss://:{SECRETS['password']}@localhost:{port}/0?ssl_ca_certs={trusted}"
        found = {work.component: work for work in workloads(rendered(preset="kind", values=OUTSIDE))}
        assert "valkey" not in found
        assert "of admin is known" in node.run(found["migrate"])
        gateway, *_, flower = node.start(*(found[name] for name in ("gateway", "device", "reward", "flower")))
        node.services["openrl-gateway:80"] = f"127.0.0.1:{gateway.ports['8000']}"
        assert "a gradient and an optimizer step" in node.run(found["test"])
        at = f"http://127.0.0.1:{flower.ports['5555']}/api/workers?refresh=1"
        wait_for("Flower to know both workers", lambda: len(httpx.get(at, auth=tuple(USER.split(":"))).json()) == 2)


def test_a_broker_whose_certificate_is_not_trusted_is_not_talked_to(tmp_path: Path) -> None:
    node = Node(tmp_path, dict(SECRETS))
    with ExitStack() as closing:
        closing.callback(node.stop)
        (valkey,) = node.start(works()["valkey"])
        port = closing.enter_context(before(int(valkey.ports["6379"]), *certificate(tmp_path)))
        url = f"rediss://:{SECRETS['password']}@localhost:{port}/0"
        with pytest.raises(OperationalError, match="CERTIFICATE_VERIFY_FAILED"):
            make_app(url).send_task("a.task", queue="a.queue", retry=False)
        with pytest.raises(LedgerUnreachable, match="CERTIFICATE_VERIFY_FAILED"), told_apart():
            connect(url, retries=0, longest_pause_seconds=0).ping()
