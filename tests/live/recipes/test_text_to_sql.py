"""text_to_sql as its README says, on the tiny model and in seconds; killed, and resumed."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from living import Server, sdk_environment, wait_for

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parents[3] / "recipes" / "text_to_sql"
QUICK = ["--base-model", "tiny", "--sft-steps", "3", "--sft-batch", "2", "--rl-steps", "3", "--groups", "2"]
QUICK += ["--group-size", "4", "--max-tokens", "8", "--eval-problems", "8", "--save-every", "2", "--rank", "4"]
QUICK += ["--weight-similarity", "0.5"]  # a model that knows nothing gets no other reward
QUICKEST = ["--sft-steps", "1", "--rl-steps", "1", "--eval-problems", "4"]
EVERY_STEP = [
    ("unseen", "before"),
    *(("sft", step) for step in range(3)),
    ("unseen", "sft"),
    *(("rl", step) for step in range(3)),
    ("unseen", "rl"),
]


def command(*options: str, script: str = "run.py") -> list[str]:
    return [sys.executable, str(FOLDER / script), *options]


def where(server: Server) -> dict[str, str]:
    return sdk_environment() | {"TINKER_BASE_URL": server.url, "TINKER_API_KEY": server.api_key}


def start(server: Server, *options: str) -> dict[str, str]:
    """Runs to the end; returns the figures it ends with."""
    done = subprocess.run(command(*options), capture_output=True, text=True, env=where(server), timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(re.findall(r"^(\w+): (.+)$", done.stdout, re.MULTILINE))


def steps(folder: Path) -> list[tuple[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["stage"], line.get("step", line.get("after"))) for line in lines]


def test_both_stages_run_to_their_end_with_rewards_from_the_queue(server: Server, tmp_path: Path) -> None:
    block = start(server, *QUICK, "--out", str(tmp_path))
    assert steps(tmp_path) == EVERY_STEP
    assert {"match_before", "match_sft", "match_rl", "match_unseen", "reward_last"} <= block.keys()
    assert block["weights"].startswith("tinker://") and "/sampler_weights/" in block["weights"]
    assert (tmp_path / "curve.png").stat().st_size > 1000
    unseen = json.loads((tmp_path / "unseen.json").read_text())
    assert [len(unseen[stage]) for stage in ("before", "sft", "rl")] == [8, 8, 8]
    assert {one["level"] for one in unseen["rl"]} == {1, 2, 3, 4}


def test_a_run_that_is_killed_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    """SIGKILL in the midst of RL, once its first state is saved."""
    options = [*QUICK, "--rewards", "local", "--rl-steps", "40", "--out", str(tmp_path)]
    state = tmp_path / "state.json"
    with subprocess.Popen(command(*options), env=where(server), stdout=subprocess.DEVNULL) as running:
        wait_for("a saved state of RL", lambda: state.exists() and json.loads(state.read_text())["stage"] == "rl", 200)
        running.kill()
    saved = json.loads(state.read_text())
    assert 2 <= saved["step"] < 40
    block = start(server, *options, "--resume")
    assert steps(tmp_path) == [*EVERY_STEP[:5], *(("rl", step) for step in range(40)), ("unseen", "rl")]
    assert block["state"].endswith("/weights/rl-40")


# --- what the README shows --------------------------------------------------------------------------------------------


def shown() -> list[list[str]]:
    """Its commands of this recipe, without comments."""
    blocks = re.findall(r"```\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words for words in lines if words and words[0] == "python"]


def own_data(path: Path) -> str:
    """A file in place of a dataset of the hub."""
    lines = [
        {
            "question": f"What is in {number}?",
            "context": f"CREATE TABLE t{number} (a INT); INSERT INTO t{number} VALUES ({number});",
            "answer": f"SELECT a FROM t{number}",
        }
        for number in range(1, 301)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


def test_every_command_of_the_readme_runs(server: Server, tmp_path: Path) -> None:
    """In their order, with small sizes, this server, a file of data, and the checkpoint that the SFT ended with."""
    told: dict[str, str] = {}
    commands = shown()
    assert len(commands) >= 7
    for words in commands:
        script, options = Path(words[1]), words[2:]
        assert script.parent == Path("recipes/text_to_sql")
        here = {"--base-url": server.url, "--data": own_data(tmp_path / "own.jsonl"), "--steps": "1"}
        here["--start"] = told.get("state", "")
        for name, value in here.items():
            if name in options:
                options[options.index(name) + 1] = value
        quick = [*QUICK, *QUICKEST, *options, "--base-model", "tiny"] if script.name == "run.py" else options
        line = command(*quick, script=script.name)
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, env=where(server), timeout=200)
        assert done.returncode == 0, (words, done.stderr[-2000:])
        told = dict(re.findall(r"^(\w+): (.+)$", done.stdout, re.MULTILINE))
