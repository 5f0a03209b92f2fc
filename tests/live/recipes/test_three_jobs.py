"""The recipe three_jobs on a tiny model, with its reward on the queue, installed as its README says, and without."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from living import Server, sdk_environment

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parents[3] / "recipes" / "three_jobs"
QUICK = ["--base-model", "tiny", "--steps", "2", "--groups", "2", "--reward-seconds", "0.4"]


@pytest.fixture(scope="module")
def plugged_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Where `pip install ./recipes/three_jobs` was done before it started."""
    source, site = tmp_path_factory.mktemp("source") / "three_jobs", tmp_path_factory.mktemp("site")
    shutil.copytree(FOLDER, source)  # building leaves files beside the source
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(source)]
    subprocess.run(install, check=True)
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    home = tmp_path_factory.mktemp("plugged")
    server = Server.start(home, "--no-flower", PYTHONPATH=path, OPENRL_WORKER__REWARD_PROCESSES="3")
    yield server
    server.stop()


def start(server: Server, *options: str) -> subprocess.CompletedProcess[str]:
    where = {"TINKER_BASE_URL": server.url, "TINKER_API_KEY": server.api_key}
    command = [sys.executable, str(FOLDER / "run.py"), *QUICK, *options]
    return subprocess.run(command, capture_output=True, text=True, env=sdk_environment() | where, timeout=300)


def test_one_two_and_three_jobs_are_drawn_from_what_the_service_recorded(
    plugged_server: Server, tmp_path: Path
) -> None:
    done = start(plugged_server, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    block = dict(re.findall(r"^(\w+): (.+)$", done.stdout, re.MULTILINE))
    assert all(0 < float(block[f"busy_{jobs}"]) <= 1 for jobs in (1, 2, 3))
    assert float(block["longest_gap_seconds_1"]) > 0.2  # its rewards take as long, and nobody else is there
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert [(each["jobs"], each["left_out"]) for each in figures] == [(1, 0), (2, 0), (3, 0)]
    stretches = [json.loads(line) for line in (tmp_path / "timeline.jsonl").read_text().splitlines()]
    for jobs in (1, 2, 3):
        for doing in ("sample", "pack", "update"):
            there = {job for each in stretches if (each["jobs"], each["doing"]) == (jobs, doing) for job in each["of"]}
            assert there == set(range(1, jobs + 1)), (jobs, doing)
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert len(steps) == 2 * (1 + 2 + 3) and min(each["reward_seconds"] for each in steps) >= 0.2
    assert (tmp_path / "timeline.png").stat().st_size > 1000


def test_a_reward_that_is_not_installed_can_be_waited_for_here(server: Server, tmp_path: Path) -> None:
    missing = start(server, "--out", str(tmp_path / "out"))
    assert missing.returncode == 1 and not (tmp_path / "out").exists()
    assert "pip install ./recipes/three_jobs" in missing.stderr and "--local-reward" in missing.stderr
    assert "Traceback" not in missing.stderr
    done = start(server, "--local-reward", "--jobs", "1", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "busy_1: " in done.stdout and "busy_2: " not in done.stdout
