"""Values and settings cannot drift apart: what manifests set is a setting, and what is documented is used."""

import copy
import importlib.util
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from charting import CHART, PRESETS, ROOT, Document, Workload, environment, refused, rendered, run_helm, workloads

from openrl.config import OTHER_VARIABLES, Settings, load

spec = importlib.util.spec_from_file_location("generate", ROOT / "helm" / "generate.py")
assert spec is not None and spec.loader is not None
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)

SECRETS = {
    "OPENRL_REDIS_URL": "redis://host:6379/0",
    "OPENRL_CATALOG_URL": "postgresql://host/openrl",
    "OPENRL_API_KEY": "tml-x",
    "OPENRL_WORKER_ID": "pod",
}
#: One of each, so that every template has something to say.
MODELS = [
    {
        "name": "org/one",
        "device": {"gpus": 0},
        "aliases": ["uno"],
        "pull": True,
        "settings": {"train": {"full_runs": True}},
    },
    {"name": "org/two", "train": {}, "sample": {}},
]
ON: Document = {
    "models": MODELS,
    "gateway": {"replicas": 1},
    "broker": {"existingSecret": "s"},
    "flower": {"existingSecret": "s"},
    "migrate": {"existingSecret": "s"},
    "hub": {"existingSecret": "s"},
    "ingress": {"enabled": True, "host": "h", "tlsSecret": "s"},
    "autoscaling": {"kind": "keda"},
    "metrics": {"serviceMonitor": {"enabled": True}, "alerts": {"enabled": True}},
    "tracing": {"endpoint": "http://h:4318"},
    "depot": {"volume": {"accessMode": "ReadWriteOnce"}},
}
#: What is inside of the cluster, with nothing outside; and the reverse.
INSIDE: Document = {}
OUTSIDE: Document = {
    "gateway": {"replicas": 2},
    "catalog": {"existingSecret": "s"},
    "broker": {"external": True},
    "depot": {"url": "s3://bucket", "existingSecret": "s"},
    "autoscaling": {"prometheus": "http://prometheus"},
}
#: Values that decide what there is at all: those that a base sets stay as they are in it.
DECIDING = ("models", "gateway.replicas", "autoscaling.kind", "workers.all.gpus")


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


# ------------------------------------------------------------------------------------------------ settings
@pytest.mark.parametrize("preset", PRESETS)
def test_every_container_starts_with_settings_that_openrl_accepts(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    containers = [(work, each) for work in workloads(rendered(preset=preset)) for each in work.containers]
    assert containers
    for work, container in containers:
        settings = settings_of(container, monkeypatch)
        assert str(settings.data_dir) == "/data" or work.component in ("flower", "valkey", "test"), work.name


@pytest.mark.parametrize("base", [INSIDE, OUTSIDE], ids=["inside", "outside"])
def test_settings_among_the_values_arrive(base: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {
        "train": {"pack_tokens": 8_000_000, "memory_gb": 1.5, "full_runs": True},
        "retention": {"silent_seconds": 100000000},
    }
    text = rendered("--set", "networkPolicy.enabled=false", values=merged(merged(ON, base), {"settings": own}))
    for work in workloads(text):
        for container in work.pod["containers"]:
            if "OPENRL_DATA_DIR" in environment(container) and work.component != "migrate":
                settings = settings_of(container, monkeypatch)
                assert (settings.train.pack_tokens, settings.train.memory_gb, settings.train.full_runs) == (
                    8_000_000,
                    1.5,
                    True,
                )
                assert settings.retention.silent_seconds == 1e8, work.name
                assert settings.log.format == "json"


def settings_of(container: Document, monkeypatch: pytest.MonkeyPatch) -> Settings:
    found = environment(container)
    with monkeypatch.context() as patch:
        for name, value in found.items():
            if name.startswith("OPENRL_"):
                patch.setenv(name, SECRETS[name] if value is None else value)
        return load()


def test_the_nearest_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    values = merged(
        ON,
        {
            "settings": {"worker": {"appetite": 1, "threads": 1}, "train": {"pack_tokens": 1}},
            "workers": {
                "all": {"settings": {"worker": {"appetite": 2}}},
                "train": {"settings": {"worker": {"appetite": 3}}},
            },
        },
    )
    found = {
        work.component: settings_of(work.pod["containers"][0], monkeypatch)
        for work in workloads(rendered(values=values))
        if work.component in ("gateway", "device", "train")
    }
    assert {name: each.worker.appetite for name, each in found.items()} == {"gateway": 1, "device": 2, "train": 3}
    assert {each.worker.threads for each in found.values()} == {1}
    assert found["device"].train.full_runs, "of the model"
    assert not found["train"].train.full_runs


def test_what_the_chart_sets_cannot_be_set_twice() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["$defs"]["settings"]
    told = {
        name
        for preset in PRESETS
        for work in workloads(rendered(preset=preset))
        for each in work.containers
        for name in environment(each)
    }
    own = {name for name in told if name.startswith("OPENRL_")} - OTHER_VARIABLES - {"OPENRL_LOG__FORMAT"}
    assert len(own) > 10
    for variable in own:
        assert not allows(schema, variable.removeprefix("OPENRL_").lower().split("__")), variable


def allows(schema: Mapping[str, Any], path: list[str]) -> bool:
    return not path or (path[0] in schema.get("properties", {}) and allows(schema["properties"][path[0]], path[1:]))


def test_a_mistyped_setting_is_refused() -> None:
    assert "'pack_tokenz' not allowed" in refused("--set", "settings.train.pack_tokenz=1")
    assert "want integer" in refused("--set-string", "settings.train.pack_tokens=many")
    assert "'hots' not allowed" in refused("--set", "ingress.hots=h")
    assert "env" in refused("--set", "workers.all.env.OPENRL_WORKER__THREADS=1"), "there is one way to say it"


# ------------------------------------------------------------------------------------------------ every value is used
def defaults() -> Document:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


def leaves(tree: Document, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value and f"{prefix}{name}" not in ("settings", "reward.seccompProfile"):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def merged(one: Document, other: Document) -> Document:
    result = copy.deepcopy(one)
    for name, value in other.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = merged(result[name], value) if both else copy.deepcopy(value)
    return result


def put(tree: Document, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[last] = value


def get(tree: Document, path: str) -> Any:
    for name in path.split("."):
        tree = tree.get(name, {}) if isinstance(tree, dict) else {}
    return tree


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
            put(values, path, word)
            shown[path] = [word]
        else:
            put(values, path, [{word: word}] if isinstance(value, list) else {word: word})
            shown[path] = [word, word.upper()]
    return values, shown


#: Empty, they say that something is inside of the cluster, or that there is none.
ABSENT = (
    "catalog.existingSecret",
    "depot.url",
    "depot.volume.existingClaim",
    "hub.existingClaim",
    "autoscaling.prometheus",
)


def test_every_value_is_used_by_a_template() -> None:
    found: set[str] = set()
    wanted: set[str] = set()
    claims = {"depot": {"volume": {"existingClaim": "c"}}, "hub": {"existingClaim": "c"}}
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
        base["networkPolicy"] = {"depotTo": [{"ports": [{"port": 443}]}]}
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
        (["autoscaling.kind=hpa", "workers.all.minReplicas=0"], "set it to 1, or autoscaling.kind=keda"),
        (["autoscaling.kind=hpa", "reward.minReplicas=0"], "reward.minReplicas is 0"),
    ],
)
def test_values_that_cannot_be_are_refused_with_what_to_do(options: list[str], told: str) -> None:
    models = any("models" in each for each in options)
    values = None if not models else {"models": named(options)}
    rest = [argument for each in options if "models" not in each for argument in ("--set", each)]
    assert told in refused(*rest, values=values)


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


def test_a_gpu_worker_never_falls_back_to_the_cpu() -> None:
    devices = {
        work.name: environment(work.pod["containers"][0]).get("OPENRL_WORKER__DEVICE") for work in model_workers(ON)
    }
    assert devices == {
        "Deployment/openrl-device-one": "cpu",
        "Deployment/openrl-train-two": "cuda",
        "Deployment/openrl-sample-two": "cuda",
    }


def test_gpus_are_processes_of_a_train_worker_and_tensor_parallel_of_a_sample_worker() -> None:
    found = {
        work.component: work.pod["containers"][0]
        for work in model_workers(merged(ON, {"workers": {"all": {"gpus": 2}}}))
    }
    assert found["train"]["args"] == ["--processes", "2"]
    assert environment(found["sample"])["OPENRL_SAMPLE__VLLM__TENSOR_PARALLEL"] == "2"
    assert "nvidia.com/gpu" not in found["device"]["resources"]["limits"]
    assert (
        found["train"]["resources"]["limits"]["nvidia.com/gpu"]
        == found["sample"]["resources"]["limits"]["nvidia.com/gpu"]
        == 2
    )


def model_workers(values: Document) -> list[Workload]:
    return [work for work in workloads(rendered(values=values)) if work.component in ("device", "train", "sample")]


def test_requests_wait_for_every_model() -> None:
    (gateway,) = (work for work in workloads(rendered(values=ON)) if work.component == "gateway")
    assert environment(gateway.pod["containers"][0])["OPENRL_GATEWAY__AWAITED_MODELS"] == "org/one,org/two"
