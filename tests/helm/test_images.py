"""The images: there is no container engine in the tests, so what they install is installed into plain environments."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from charting import CHART, ROOT

DOCKERFILE = ROOT / "docker" / "Dockerfile"
TARGETS = ("gateway", "reward", "cpu", "gpu")
#: What each image without torch is for.
USES = {
    "gateway": [
        ["openrl", "gateway", "--help"],
        ["openrl", "migrate", "--data-dir", "data"],
        ["openrl", "try", "--help"],
        ["python", "-c", "import openrl.gateway.app, psycopg, s3fs, gcsfs"],
        ["python", "-c", "from openrl.cli import trial"],
        ["celery", "--broker", "memory://", "flower", "--help"],
    ],
    "reward": [
        ["openrl", "worker", "--help"],
        ["python", "-c", "import workers.start, workers.reward.station, workers.reward.tasks, s3fs, gcsfs"],
        ["python", "-m", "workers.reward.sandbox.walls"],
    ],
}


def stages() -> dict[str, list[str]]:
    """The instructions of each stage, FROM first."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("FROM "):
            name = line.rpartition(" AS ")[2]
            found[name] = []
        found[name].append(line)
    return found


def installs(target: str) -> list[str]:
    return [line.removeprefix("RUN ") for line in stages()[f"install-{target}"] if line.startswith("RUN pip install")]


def test_every_image_of_the_chart_is_a_target() -> None:
    images = yaml.safe_load((CHART / "values.yaml").read_text())["images"]
    own = {name: image for name, image in images.items() if name in TARGETS}
    assert own.keys() == set(TARGETS)
    assert set(TARGETS) <= stages().keys()


@pytest.mark.parametrize("target", TARGETS)
def test_images_end_as_a_user_with_nothing_but_the_environment(target: str) -> None:
    final = stages()[target]
    users = [line for line in [*stages()["base"], *final] if line.startswith("USER")]
    assert users[-1] == "USER 65532:65532"
    assert [line for line in final if line.startswith("COPY")] == [f"COPY --from=install-{target} /venv /venv"]
    assert final[0] == f"FROM base AS {target}"


def test_the_gpu_image_finds_a_driver_that_the_node_mounts() -> None:
    (variables,) = (line for line in stages()["gpu"] if line.startswith("ENV"))
    assert "LD_LIBRARY_PATH=/usr/local/nvidia/lib64" in variables.split()


@pytest.mark.parametrize("target", TARGETS)
def test_extras_exist(target: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"'\.\[([a-z0-9,]+)\]'", " ".join(installs(target)))
    assert named
    assert set(named[0].split(",")) <= extras.keys()


def test_what_is_copied_is_not_ignored() -> None:
    copied = {name for line in stages()["source"] if line.startswith("COPY") for name in line.split()[1:-1]}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines


@pytest.mark.live
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("target", USES)
def test_images_without_torch_hold_all_they_need(target: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--upgrade-deps", str(tmp_path / "venv")], check=True)
    path = f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin"
    for name in ("pyproject.toml", "README.md", "LICENSE", "openrl", "queues", "workers"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(tmp_path)], check=True)
    own = {"PATH": path, "HOME": str(Path.home()), "PIP_NO_COMPILE": "1"}  # what is imported is compiled then
    for line in installs(target):
        subprocess.run(["sh", "-c", line], check=True, cwd=tmp_path, env=own)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for command in USES[target]:
        done = subprocess.run(
            command, cwd=elsewhere, env={"PATH": path, "HOME": str(elsewhere)}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
    found = subprocess.run(["python", "-c", "import torch"], cwd=elsewhere, env={"PATH": path}, capture_output=True)
    assert found.returncode != 0, "torch is in it"
