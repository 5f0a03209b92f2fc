"""Values that turn everything on, and trees of values."""

import copy
from collections.abc import Iterator
from typing import Any

import yaml
from charting import CHART, Document

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
    "trust": {"existingSecret": "s"},
    "ingress": {"enabled": True, "host": "h", "tlsSecret": "s"},
    "autoscaling": {"kind": "keda"},
    "metrics": {"serviceMonitor": {"enabled": True}, "alerts": {"enabled": True}},
    "tracing": {"endpoint": "http://h:4318"},
    "networkPolicy": {"tracingTo": [{"ports": [{"port": 4318}]}]},
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
