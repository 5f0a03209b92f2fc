"""What every pod of every preset keeps to."""

import re
from collections.abc import Iterator

import pytest
from charting import PRESETS, Document, Workload, documents, environment, rendered, workloads

#: Names of variables whose values are secrets.
SECRET = re.compile(r"PASSWORD|TOKEN|SECRET|AUTH|API_KEY|REDIS_URL|CATALOG_URL")
#: Secrets' variables that are made of others, or point at a file.
MADE_OF_OTHERS = re.compile(r"redis://:\$\(VALKEY_PASSWORD\)@[a-z0-9-]+:6379/0|sqlite:////catalog/catalog\.db")
#: Run once, and are over.
ONCE = ("Job", "Pod")

pytestmark = pytest.mark.parametrize("preset", PRESETS)


def containers(preset: str) -> Iterator[tuple[Workload, Document]]:
    return ((work, container) for work in workloads(rendered(preset=preset)) for container in work.containers)


def test_no_container_runs_as_root_or_may_become_more_than_it_is(preset: str) -> None:
    for work, container in containers(preset):
        where = f"{work.name}: {container['name']}"
        pod, own = work.pod["securityContext"], container["securityContext"]
        assert (pod["runAsNonRoot"], pod["runAsUser"] > 0) == (True, True), where
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, where
        assert own["allowPrivilegeEscalation"] is False, where
        assert own["readOnlyRootFilesystem"] is True, where
        assert own["capabilities"] == {"drop": ["ALL"]}, where
        assert not {"privileged", "runAsUser"} & own.keys(), where


def test_no_pod_shares_anything_with_its_node_or_knows_the_cluster(preset: str) -> None:
    for work in workloads(rendered(preset=preset)):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & work.pod.keys(), work.name
        assert not any("hostPath" in volume for volume in work.pod["volumes"]), work.name
        assert work.pod["automountServiceAccountToken"] is False, work.name
        assert work.pod["enableServiceLinks"] is False, f"{work.name}: variables of Services would be no settings"
        assert work.pod["shareProcessNamespace"], f"{work.name}: number 1 ignores signals without a handler"
        assert len(work.pod["containers"]) == 1, f"{work.name}: another container would see its processes"


def test_an_upgrade_of_the_chart_alone_does_not_stop_the_broker(preset: str) -> None:
    (valkey,) = (work for work in workloads(rendered(preset=preset)) if work.component == "valkey")
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & valkey.labels.keys()


def test_every_container_says_what_it_takes(preset: str) -> None:
    for work, container in containers(preset):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), f"{work.name}: {container['name']}"
        assert "memory" in resources["limits"], f"{work.name}: {container['name']}"


def test_every_process_that_stays_is_probed(preset: str) -> None:
    for work in workloads(rendered(preset=preset)):
        if work.document["kind"] not in ONCE:
            for container in work.pod["containers"]:
                probes = {"startupProbe", "livenessProbe", "readinessProbe"}
                assert probes <= container.keys(), f"{work.name}: {container['name']}"
                named = {port["name"] for port in container["ports"]}
                assert all(container[probe].get("httpGet", {}).get("port", "valkey") in named for probe in probes)


def test_a_gateway_is_not_restarted_because_the_broker_is_away(preset: str) -> None:
    (gateway,) = (work for work in workloads(rendered(preset=preset)) if work.component == "gateway")
    (container,) = gateway.pod["containers"]
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def test_what_is_written_to_lies_on_a_volume(preset: str) -> None:
    """The root file system is read-only."""
    for work, container in containers(preset):
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= {
            *(volume["name"] for volume in work.pod["volumes"]),
            *(claim["metadata"]["name"] for claim in work.document["spec"].get("volumeClaimTemplates", [])),
        }
        for name, value in environment(container).items():
            path = (value or "").removeprefix("file://").removeprefix("sqlite:///")
            if path.startswith("/") and name not in ("HOME",):
                assert any(path == place or path.startswith(f"{place}/") for place in mounted), f"{work.name}: {name}"


def test_temporary_files_of_workers_may_fill_all_their_room(preset: str) -> None:
    """vLLM's adapters lie there, gigabytes of them."""
    for work, container in containers(preset):
        if work.component in ("device", "train", "sample", "reward"):
            places = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert places["/tmp"] == places["/data"], f"{work.name}: {container['name']}"


def test_no_secret_is_made_or_spelled_out(preset: str) -> None:
    assert not [each for each in documents(rendered(preset=preset)) if each["kind"] == "Secret"]
    for work, container in containers(preset):
        for name, value in environment(container).items():
            if SECRET.search(name) and value is not None:
                assert MADE_OF_OTHERS.fullmatch(value), f"{work.name}: {name} is spelled out"


# ------------------------------------------------------------------------------------------------ network
def policies(preset: str) -> list[Document]:
    return [each for each in documents(rendered(preset=preset)) if each["kind"] == "NetworkPolicy"]


def policy_of(preset: str, component: str) -> Document:
    (found,) = (
        each
        for each in policies(preset)
        if each["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == component
    )
    return found


def test_a_network_policy_selects_every_pod_for_both_ways(preset: str) -> None:
    for work in workloads(rendered(preset=preset)):
        mine = [
            each
            for each in policies(preset)
            if each["spec"]["podSelector"]["matchLabels"].items() <= work.labels.items()
        ]
        assert len(mine) == 1, f"{work.name}: {len(mine)} policies"
        assert mine[0]["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_reward_pods_reach_names_the_broker_and_the_depot_only(preset: str) -> None:
    names, broker, *depot = policy_of(preset, "reward")["spec"]["egress"]
    assert names["ports"] == [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    system, *own = names["to"]
    assert system == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    assert all(peer["ipBlock"]["cidr"].startswith("169.254.") for peer in own), "of the node itself"
    (peer,) = broker["to"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "valkey"
    assert broker["ports"] == [{"port": 6379, "protocol": "TCP"}]
    assert bool(depot) == (preset == "gke"), "elsewhere it is a volume"
    for rule in depot:
        assert rule["to"], "an address"
        assert rule["ports"]


def test_the_catalog_and_the_hub_are_not_for_reward_pods(preset: str) -> None:
    for work, container in containers(preset):
        if work.component in ("reward", "flower", "sample"):
            assert "OPENRL_CATALOG_URL" not in environment(container), work.name
            assert not [each for each in container["volumeMounts"] if each["mountPath"] == "/catalog"], work.name
        if work.component in ("reward", "flower", "gateway"):
            assert "HF_TOKEN" not in environment(container), work.name


def test_only_pods_of_the_release_reach_the_broker(preset: str) -> None:
    (rule,) = policy_of(preset, "valkey")["spec"]["ingress"]
    (peer,) = rule["from"]
    assert peer.keys() == {"podSelector"}, "of this namespace"
    assert not policy_of(preset, "valkey")["spec"]["egress"]


def test_metrics_are_not_behind_the_ingress(preset: str) -> None:
    for each in documents(rendered(preset=preset)):
        if each["kind"] == "Service" and each["metadata"]["name"] == "openrl-gateway":
            assert [port["targetPort"] for port in each["spec"]["ports"]] == ["api"]
        if each["kind"] == "Ingress":
            assert each["spec"]["tls"]
            (path,) = each["spec"]["rules"][0]["http"]["paths"]
            assert path["backend"]["service"] == {"name": "openrl-gateway", "port": {"name": "api"}}
