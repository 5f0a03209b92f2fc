"""Values, their documentation and what becomes of them cannot drift apart."""

import copy
import importlib.util
import json

import pytest
from charting import CHART, ROOT, Document, refused, rendered, run_helm
from everything import INSIDE, ON, OUTSIDE, defaults, get, leaves, merged, put

spec = importlib.util.spec_from_file_location("generate", ROOT / "helm" / "generate.py")
assert spec is not None and spec.loader is not None
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)

#: Values that decide what there is at all: those that a base sets stay as they are in it.
DECIDING = ("models", "gateway.replicas", "autoscaling.kind", "workers.all.gpus", "broker.memoryPercent")


def test_the_table_of_values_and_the_schema_of_settings_are_current() -> None:
    assert (CHART / "README.md").read_text() == generate.with_table()
    assert (CHART / "values.schema.json").read_text() == generate.with_settings()


def test_the_schema_allows_no_value_that_is_not_documented() -> None:
    """That it allows every documented one, helm sees to."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    documented = {path for path, _, _ in generate.values()}
    untold = {path for path in leaves_of_schema(schema, schema) if not told(path, documented)}
    assert untold == set(), "in the schema, and not in values.yaml"


def told(path: str, documented: set[str]) -> bool:
    """Below one that is documented as a whole, too."""
    parts = path.split(".")
    return any(".".join(parts[:count]) in documented for count in range(1, len(parts) + 1)) or path == "global"


def leaves_of_schema(node: Document, whole: Document, path: str = "") -> set[str]:
    if "$ref" in node:
        return {path} if path.endswith("settings") else leaves_of_schema(whole["$defs"][node["$ref"][8:]], whole, path)
    if "properties" not in node:
        return {path}
    prefix = f"{path}." if path else ""
    return {
        leaf for name, below in node["properties"].items() for leaf in leaves_of_schema(below, whole, prefix + name)
    }


# ------------------------------------------------------------------------------------------------ every value is used
def marks(base: Document) -> tuple[Document, dict[str, list[str]]]:
    """Every value that can be anything as something that is nowhere else, and how each shows in the manifests."""
    values, shown = merged(ON, base), {}
    for number, (path, value) in enumerate(leaves(defaults()), 1):
        word = f"zz{number:03}"
        if (
            isinstance(value, bool)
            or path in DECIDING
            or (value == "" and get(values, path) in ({}, "") and path in ABSENT)
        ):
            continue
        if path in ("workers.device", "workers.train"):
            put(values, path, {"runtimeClassName": word})
            shown[path] = [word]
        elif isinstance(value, int):
            put(values, path, 70_000 + 10 * number)
            shown[path] = [str(70_000 + 10 * number), str((70_000 + 10 * number) // 5)]
        elif isinstance(value, str):
            word = f"{number}Mi" if path.endswith((".cpu", ".memory")) else word
            put(values, path, word)
            shown[path] = [word]
        else:
            put(values, path, [{word: word}] if isinstance(value, list) else {word: word})
            shown[path] = [word, word.upper()]
    return values, shown


#: Empty, they say that something is inside of the cluster, that there is none, or that another value holds.
ABSENT = (
    "catalog.existingSecret",
    "depot.url",
    "depot.volume.existingClaim",
    "hub.existingClaim",
    "autoscaling.prometheus",
    *(f"images.tags.{name}" for name in ("gateway", "gpu", "cpu", "reward")),
)


def test_every_value_is_used_by_a_template() -> None:
    found: set[str] = set()
    wanted: set[str] = set()
    tags = dict.fromkeys(("gateway", "gpu", "cpu", "reward"), "t")
    claims = {"depot": {"volume": {"existingClaim": "c"}}, "hub": {"existingClaim": "c"}, "images": {"tags": tags}}
    for base in (INSIDE, merged(INSIDE, claims), OUTSIDE):
        values, shown = marks(base)
        text = rendered("--skip-schema-validation", values=values)
        wanted |= shown.keys()
        found |= {path for path, words in shown.items() if any(word in text for word in words)}
    assert len(wanted) > 80
    assert sorted(wanted - found) == []


def test_every_switch_changes_something() -> None:
    switches = [(path, not value) for path, value in leaves(defaults()) if isinstance(value, bool)]
    switches += [("autoscaling.kind", "none"), ("workers.all.gpus", 2), ("gateway.replicas", 3)]
    for path, value in switches:
        base = merged(ON, OUTSIDE if path == "gateway.replicas" else INSIDE)
        base["networkPolicy"]["depotTo"] = [{"ports": [{"port": 443}]}]
        other = copy.deepcopy(base)
        put(other, path, not get(base, path) if isinstance(get(base, path), bool) else value)
        assert rendered(values=base) != rendered(values=other), path


# ------------------------------------------------------------------------------------------------ values that cannot be
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["gateway.replicas=2"],
            "name a secret with the URL of a PostgreSQL database there, or set gateway.replicas=1",
        ),
        (["depot.volume.accessMode=ReadWriteMany"], "or set depot.volume.accessMode=ReadWriteOnce"),
        (["depot.url=s3://b"], "an SQLite catalog lies on the depot's volume"),
        (["broker.existingSecret="], "kubectl create secret generic openrl"),
        (["flower.existingSecret="], "or set flower.enabled=false"),
        (["ingress.enabled=true", "ingress.host=h"], "ingress.host and ingress.tlsSecret must be set"),
        (["depot.url=s3://b", "catalog.existingSecret=s"], "networkPolicy.depotTo is empty"),
        (["models[0].name=a", "models[0].device.gpus=2"], "set train and sample in place of device"),
        (["models[0].name=a"], "a has no workers: give it device, or train and sample"),
        (
            ["models[0].name=a/x", "models[0].train=null", "models[1].name=b/x", "models[1].train=null"],
            "openrl-train-x",
        ),
        (["models[0].name=/models/ä/", "models[0].train=null"], "give it an id"),
        (["autoscaling.kind=hpa", "workers.all.minReplicas=0"], "set it to 1, or autoscaling.kind=keda"),
        (["workers.all.minReplicas=0"], "nothing scales up from there with autoscaling.kind=none"),
        (["autoscaling.kind=hpa", "reward.minReplicas=0"], "reward: minReplicas is 0"),
        (["autoscaling.kind=keda", "workers.device.minReplicas=5"], "maxReplicas is 4 and minReplicas 5"),
        (["reward.graceSeconds=10"], "reward: graceSeconds is 10, and settings.worker.drain_seconds"),
        (["settings.worker.drain_seconds=120"], "the device worker of tiny: graceSeconds is 120"),
        (["gateway.leaveSeconds=28"], "raise graceSeconds to 38 or more"),
        (["tracing.endpoint=http://h:4318"], "networkPolicy.tracingTo is empty"),
        (["settings.reward.webhook_urls={https://h/v1}"], "networkPolicy.rewardTo is empty"),
        (["metrics.port=8000"], "where the gateway answers its API: choose another"),
        (["gateway.resources.requests.memory=3Gi"], "gateway: resources.requests.memory is 3Gi and resources.limits"),
        (["reward.resources.requests.cpu=1500m"], "reward: resources.requests.cpu is 1500m and resources.limits.cpu 1"),
        (
            ["models[0].name=a", "models[0].train.resources.limits.memory=1Gi"],
            "the train worker of a: resources.requests",
        ),
    ],
)
def test_values_that_cannot_be_are_refused_with_what_to_do(options: list[str], told: str) -> None:
    models = any(each.startswith("models[") for each in options)
    values = None if not models else {"models": named(options)}
    rest = [argument for each in options if not each.startswith("models[") for argument in ("--set", each)]
    assert told in refused(*rest, values=values)


def test_a_name_is_of_one_model() -> None:
    models = [{"name": "a", "aliases": ["b"], "train": {}}, {"name": "b", "train": {}}]
    assert "b is a name of both a and b" in refused(values={"models": models})
    two = [{"name": "a", "aliases": ["x"], "id": id, "sample": {"gpuType": id}} for id in ("l4", "h100")]
    assert "openrl-sample-h100" in rendered(preset="kind", values={"models": two}), "workers of two kinds of one model"


def named(options: list[str]) -> list[Document]:
    """`models[0].device.gpus=2` as a list of models."""
    found: dict[str, Document] = {}
    for each in options:
        path, _, value = each.partition("=")
        index, _, below = path.removeprefix("models[").partition("].")
        put(found.setdefault(index, {}), below, {} if value == "null" else int(value) if value.isdigit() else value)
    return list(found.values())


def test_without_any_secret_nothing_is_installed() -> None:
    done = run_helm("template", "openrl", str(CHART))
    assert done.returncode != 0
    assert "existingSecret" in done.stderr
