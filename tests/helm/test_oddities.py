"""Values that people really have: names of all shapes, networks and registries of their own. Either the manifests are
such that a cluster takes them and they do what was meant, or a sentence says what to change. Helm tells all that the
schema refuses at once, and every rendering takes it a while: so tests put much into one."""

import re
from itertools import chain

import pytest
import yaml
from charting import CHART, Document, Workload, documents, environment, refused, rendered, run_helm, workloads
from everything import ON, merged, put
from test_presets import check

SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def taken(*options: str, values: Document | None = None, release: str = "openrl") -> list[Document]:
    """Manifests that a cluster takes, as far as each alone can tell, and that do not stand in each other's way."""
    found = documents(rendered(*options, values=values or ON, release=release))
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(names)) == len(names)
    for each in found:
        check(each)
        assert len(each["metadata"]["name"]) <= 63
        if each["kind"] == "Service":
            assert SERVICE_NAME.fullmatch(each["metadata"]["name"])
        for labels in label_maps(each):
            assert all(isinstance(value, str) and LABEL.fullmatch(value) for value in labels.values()), labels
    return list(found)


def label_maps(node: object) -> list[dict[str, object]]:
    """Everything in a manifest that is labels, or selects by them."""
    if isinstance(node, list):
        return list(chain.from_iterable(map(label_maps, node)))
    if not isinstance(node, dict):
        return []
    own = [value for name, value in node.items() if name in ("labels", "matchLabels", "nodeSelector")]
    return own + list(chain.from_iterable(map(label_maps, node.values())))


def of(component: str, found: list[Document]) -> Workload:
    text = yaml.safe_dump_all(found)
    (work,) = (each for each in workloads(text) if each.component == component)
    return work


# ------------------------------------------------------------------------------------------------ names
NAMES = (
    *("org/123", "on", "1e5", "null", '/models/with"quote'),
    "Org.Name/A_Model.With.Dots-And-UPPER-case-and-more-than-forty-characters",
    "org/" + "x" * 200,
)


def test_models_of_any_name() -> None:
    found = taken(values=merged(ON, {"models": [{"name": name, "sample": {}} for name in NAMES]}))
    samplers = [work for work in workloads(yaml.safe_dump_all(found)) if work.component == "sample"]
    served = [environment(work.pod["containers"][0])["OPENRL_BASE_MODEL"] for work in samplers]
    assert sorted(map(str, served)) == sorted(NAMES)
    assert environment(of("gateway", found).pod["containers"][0])["OPENRL_GATEWAY__AWAITED_MODELS"] == ",".join(NAMES)


def test_no_models_at_all() -> None:
    found = taken(values=merged(ON, {"models": []}))
    there = {work.component for work in workloads(yaml.safe_dump_all(found))}
    assert there == {"gateway", "reward", "valkey", "flower"}


@pytest.mark.parametrize("release", ["a.b", "x" * 53])
def test_releases_of_any_name(release: str) -> None:
    taken(release=release)


def test_a_release_whose_name_no_service_could_have() -> None:
    assert "set fullnameOverride" in refused(release="123")
    taken("--set", "fullnameOverride=openrl", "--namespace", "456", release="123")


#: Path, and what it cannot be.
IMPOSSIBLE = [
    ("fullnameOverride", "Upper"),
    ("listen", "127.0.0.1"),
    ("broker.existingSecret", "My_Secret"),
    ("broker.key", "a key"),
    ("broker.memoryPercent", 100),
    ("broker.resources.limits.memory", "4GB"),
    ("catalog.key", ""),
    ("flower.existingSecret", "-x"),
    ("depot.volume.className", "Fast Disk"),
    ("ingress.host", "https://h.example"),
    ("images.tag", "a tag"),
    ("images.tags.gpu", "sha256:123"),
    ("images.registry", "host/team/"),
    ("metrics.port", 80),
    ("gateway.replicas", 0),
    ("gateway.podLabels", {"app.kubernetes.io/name": "mine"}),
    ("gateway.podAnnotations.x", 1),
    ("gateway.topologySpreadConstraints", [{"maxSkew": 1}]),
    ("reward.maxReplicas", 0),
    ("reward.podLabels.x", "no label"),
    ("workers.all.resources.requests.memory", "lots"),
    ("workers.all.env.A-B", "1"),
    ("workers.train.podLabels", {"openrl.dev/worker": "false"}),
    ("models", [{"name": "a,b", "aliases": ["c=d"]}, {"name": ""}]),
]


def test_what_a_cluster_or_a_gateway_would_not_take_is_refused_with_its_path() -> None:
    values: Document = {}
    for path, value in IMPOSSIBLE:
        put(values, path, value)
    said = refused(values=values)
    for path, _ in IMPOSSIBLE:
        assert f"'/{path.replace('.', '/')}" in said or f"'/{path.rpartition('.')[0].replace('.', '/')}'" in said, path
    for path in ("/models/0/name", "/models/0/aliases/0", "/models/1/name", "/images/tags/gpu", "/reward/podLabels/x"):
        assert f"at '{path}'" in said


def test_names_of_other_things_may_look_like_numbers() -> None:
    numbers = {
        "broker": {"existingSecret": "123", "key": "456", "storage": {"className": "1e3"}},
        "hub": {"existingSecret": "7", "existingClaim": "8"},
        "depot": {"volume": {"existingClaim": "9"}},
        "flower": {"existingSecret": "10", "key": "1"},
        "ingress": {"className": "11", "tlsSecret": "12"},
        "workers": {"all": {"runtimeClassName": "13", "priorityClassName": "14"}},
        "reward": {"existingSecret": "15"},
    }
    taken(values=merged(ON, numbers))


# ------------------------------------------------------------------------------------------------ networks
EVERYTHING_ALLOWED: list[Document] = [
    {"tos": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    {},
    {"to": []},
    {"to": [{}]},
    {"to": [{"ipBlocks": {"cidr": "10.0.0.0/8"}}]},
    {"to": [{"ipBlock": {"cidr": "10.0.0.1"}}]},
    {"to": [{"ipBlock": {"cidr": "db.example.com"}}]},
    {"ports": [{"port": 5432, "protocols": "TCP"}]},
]


def test_a_rule_that_would_forbid_nothing_is_refused() -> None:
    """A cluster drops the fields that it does not know, and an empty rule allows everything."""
    rules = ("catalogTo", "brokerTo", "depotTo", "hubTo", "rewardTo", "tracingTo")
    peers = ("apiFrom", "metricsFrom", "dnsTo")
    wrong: Document = {
        name: EVERYTHING_ALLOWED if name in rules else [{"nameSpaceSelector": {}}] for name in rules + peers
    }
    said = refused(values={"networkPolicy": wrong})
    for name in rules:
        for number in range(len(EVERYTHING_ALLOWED)):
            assert f"'/networkPolicy/{name}/{number}" in said
    for name in peers:
        assert f"'/networkPolicy/{name}/0" in said


def test_ipv6_alone_is_listened_on_by_all_that_listen() -> None:
    found = taken(values=merged(ON, {"listen": "::"}))
    assert "0.0.0.0" not in yaml.safe_dump_all(found)
    for component in ("gateway", "device", "train", "sample", "reward"):
        assert environment(of(component, found).pod["containers"][0])["OPENRL_METRICS__HOST"] == "::"
    assert environment(of("gateway", found).pod["containers"][0])["OPENRL_GATEWAY__HOST"] == "::"
    assert "--address=::" in of("flower", found).pod["containers"][0]["args"]


# ------------------------------------------------------------------------------------------------ images and places
def test_one_image_may_have_a_tag_or_digest_of_its_own() -> None:
    digest = "sha256:" + "0" * 64
    images = {"registry": "host:5000/team", "tag": "1.2", "tags": {"reward": "1.2-mine", "gpu": digest}}
    found = taken(values=merged(ON, {"images": images}))
    used = {name: of(name, found).pod["containers"][0]["image"] for name in ("gateway", "device", "train", "reward")}
    assert used == {
        "gateway": "host:5000/team/openrl-gateway:1.2",
        "device": "host:5000/team/openrl-worker-cpu:1.2",
        "train": f"host:5000/team/openrl-worker-gpu@{digest}",
        "reward": "host:5000/team/openrl-worker-reward:1.2-mine",
    }


PLACE: Document = {
    "nodeSelector": {"pool": "one"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "high",
    "podAnnotations": {"a.example/x": "1"},
    "podLabels": {"team": "rl"},
}
SPREAD = [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]


@pytest.mark.parametrize(
    ("path", "components"),
    [
        ("gateway", ["gateway", "flower", "test"]),
        ("workers.all", ["train", "sample"]),
        ("workers.train", ["train"]),
        ("reward", ["reward"]),
        ("broker", ["valkey"]),
    ],
)
def test_pods_stand_where_their_component_says(path: str, components: list[str]) -> None:
    values: Document = {**PLACE, **({} if path == "broker" else {"topologySpreadConstraints": SPREAD})}
    for name in reversed(path.split(".")):
        values = {name: values}
    found = taken(values=merged(ON, values))
    for work in workloads(yaml.safe_dump_all(found)):
        here = work.component in components or (work.component == "device" and path == "workers.all")
        assert (work.pod.get("priorityClassName") == "high") is here, work.name
        assert (work.pod.get("affinity") == PLACE["affinity"]) is here, work.name
        if here and work.component not in ("flower", "test"):
            assert work.labels["team"] == "rl"
            assert work.document["spec"]["template"]["metadata"]["annotations"]["a.example/x"] == "1"
            if path != "broker":
                (spread,) = work.pod["topologySpreadConstraints"]
                assert spread["labelSelector"]["matchLabels"].items() <= work.labels.items()
                assert spread["topologyKey"] == "topology.kubernetes.io/zone"


@pytest.mark.parametrize("component", ["flower", "migrate"])
def test_pods_that_stand_with_the_gateway_have_labels_of_their_own(component: str) -> None:
    outside = {"catalog": {"existingSecret": "s"}, component: {"podLabels": {"x": "y"}, "podAnnotations": {"a": "b"}}}
    work = of(component, taken(values=merged(ON, outside)))
    assert work.labels["x"] == "y"
    assert work.document["spec"]["template"]["metadata"]["annotations"] == {"a": "b"}


# ------------------------------------------------------------------------------------------------ the broker
@pytest.mark.parametrize(
    ("limit", "percent", "wanted"),
    [("4Gi", 70, 4 * 2**30 * 7 // 10), ("512Mi", 50, 2**28), ("1.5G", 10, 150_000_000), ("2147483648", 25, 2**29)],
)
def test_the_broker_may_fill_a_part_of_its_memory_and_forgets_nothing(limit: str, percent: int, wanted: int) -> None:
    values = {
        "broker": {"memoryPercent": percent, "resources": {"limits": {"memory": limit}, "requests": {"memory": "1Mi"}}}
    }
    (container,) = of("valkey", taken(values=merged(ON, values))).pod["containers"]
    lines = [line.strip() for line in container["command"][-1].splitlines()]
    assert f"maxmemory {wanted}" in lines
    assert "maxmemory-policy noeviction" in lines


def test_certificates_are_where_urls_name_them() -> None:
    found = taken(values=merged(ON, {"catalog": {"existingSecret": "s"}, "trust": {"existingSecret": "mine"}}))
    for work in workloads(yaml.safe_dump_all(found)):
        mounts = {mount["mountPath"]: mount["name"] for mount in work.pod["containers"][0]["volumeMounts"]}
        if work.component in ("valkey", "test"):
            assert "/trust" not in mounts
            continue
        (volume,) = (each for each in work.pod["volumes"] if each["name"] == mounts["/trust"])
        assert volume["secret"] == {"secretName": "mine"}, work.name


def test_whoever_installs_is_told_what_horizontal_autoscalers_still_need() -> None:
    def notes(kind: str) -> str:
        preset = str(CHART / "values-single-gpu.yaml")
        told = (
            "--dry-run=client",
            "--values",
            preset,
            "--set",
            f"autoscaling.kind={kind},autoscaling.oldestSeconds=900",
        )
        done = run_helm("install", "openrl", str(CHART), "--namespace", "rl", *told)
        assert done.returncode == 0, done.stderr
        return done.stdout.partition("NOTES:")[2]

    assert "openrl_workers_demand and openrl_workers_oldest_seconds" in notes("hpa")
    assert "a metrics adapter serves them" in notes("hpa")
    assert "adapter" not in notes("keda")
