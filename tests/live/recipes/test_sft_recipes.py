"""The recipes of supervised fine-tuning: every command of their READMEs, small, and on the tiny model."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from living import Server, sdk_environment

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
RECIPES = ("sft_pig_latin", "function_calling")
#: The last of two equal options counts.
SMALL = "--base-model tiny --steps 4 --batch 2 --tests 3 --test-every 2 --rank 4"


def commands(recipe: str) -> list[str]:
    readme = (ROOT / "recipes" / recipe / "README.md").read_text()
    return re.findall(rf"^python (recipes/{recipe}/run\.py[^#\n]*)", readme, re.MULTILINE)


def start(server: Server, command: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [*shlex.split(command), *SMALL.split(), "--base-url", server.url, "--out", str(out), *options]
    environment = sdk_environment() | {"TINKER_API_KEY": server.api_key}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=200
    )


def block(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(re.findall(r"^(\w+): (.+)$", done.stdout, re.MULTILINE))


def metrics(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_command_of_the_readme_runs_to_its_end(server: Server, recipe: str, tmp_path: Path) -> None:
    """In the order in which they stand there, in one folder: one of them resumes what an earlier one began."""
    shown = commands(recipe)
    assert any("--resume" in command for command in shown) and any("--base-url" in command for command in shown)
    for command in shown:
        told = block(start(server, command, tmp_path))
        assert told["steps"] == "4"
        assert told["weights"].startswith("tinker://")
        assert [line["step"] for line in metrics(tmp_path)] == [0, 1, 2, 3, 4]
        assert (tmp_path / "curve.png").stat().st_size > 1000


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_run_learns_what_it_would_have_learned(server: Server, recipe: str, tmp_path: Path) -> None:
    block(start(server, f"recipes/{recipe}/run.py", tmp_path))
    whole, state = metrics(tmp_path), tmp_path / "state.json"
    last = json.loads(state.read_text())
    assert last["step"] == 4 and last["path"].endswith("/step-4")
    assert whole[3]["loss"] < whole[0]["loss"]
    state.write_text(json.dumps({"step": 2, "path": last["path"].replace("step-4", "step-2")}))
    block(start(server, f"recipes/{recipe}/run.py --resume", tmp_path))
    resumed = metrics(tmp_path)
    assert [line["step"] for line in resumed] == [0, 1, 2, 3, 4]
    assert [line["loss"] for line in resumed[:4]] == pytest.approx([line["loss"] for line in whole[:4]], rel=1e-4)


@pytest.mark.parametrize("recipe", RECIPES)
def test_there_is_nothing_to_resume_in_an_empty_folder(server: Server, recipe: str, tmp_path: Path) -> None:
    done = start(server, f"recipes/{recipe}/run.py --resume", tmp_path)
    assert done.returncode == 1
    assert "nothing to resume" in done.stderr and "Traceback" not in done.stderr
