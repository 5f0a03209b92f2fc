"""The benches that drive a server by the SDK still run; what they measure is not looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from living import Server

BENCH = Path(__file__).parents[2] / "bench"

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def bench(server: Server, script: str, report: Path, *options: str) -> dict[str, float]:
    command = [sys.executable, str(BENCH / script), "--quick", "--json", str(report), *options]
    command += ["--base-url", server.url, "--api-key", server.api_key, "--model", server.model]
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    figures: dict[str, float] = json.loads(report.read_text())["figures"]
    return figures


def test_jobs_does_the_same_work_on_both_sides(server: Server, tmp_path: Path) -> None:
    reference = ("--reference-url", server.url, "--reference-key", server.api_key, "--reference-python", sys.executable)
    figures = bench(server, "jobs.py", tmp_path / "jobs.json", "--reward-latency", "0.01", *reference)
    of_a_job = 2 * 4 * 4  #: steps, prompts, completions of a prompt
    for jobs in (1, 2):
        assert figures[f"sampled_tokens_{jobs}"] == figures[f"ref_sampled_tokens_{jobs}"] == jobs * of_a_job * 16
        assert figures[f"trained_tokens_{jobs}"] == figures[f"ref_trained_tokens_{jobs}"] == jobs * of_a_job * 31
        assert figures[f"ratio_steps_per_s_{jobs}"] > 0
        assert figures[f"busy_{jobs}"] > 0


def test_crowd_leaves_its_runs_and_comes_again(server: Server, tmp_path: Path) -> None:
    figures = bench(server, "crowd.py", tmp_path / "crowd.json")
    trips = ("forward_backward", "optim_step", "save", "sample")
    assert all(figures[f"{trip}_p50_ms"] > 0 for trip in trips)
    assert figures["after_20_ratio"] == max(figures[f"after_20_{trip}_ratio"] for trip in trips)


def test_reward_scores_rightly_alone_together_and_in_a_crowd(server: Server, tmp_path: Path) -> None:
    figures = bench(server, "reward.py", tmp_path / "reward.json")  # it checks every score itself
    assert all(figures[key] > 0 for key in ("p50_ms", "p95_ms", "crowd_p95_ms", "scores_per_s"))
