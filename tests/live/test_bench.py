"""The benches that drive a server by the SDK still run; what they measure is not looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from living import Server

from openrl.catalog.repository import Catalog
from openrl.models import tiny

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


def test_flood_times_one_tenant_beside_anothers_samples(server: Server, tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{server.home / 'catalog.db'}")
    _, key = catalog.create_key("a flooding tenant")
    catalog.close()
    figures = bench(server, "flood.py", tmp_path / "flood.json", "--flooding-key", key)
    names = ("idle_p50_ms", "idle_p95_ms", "p50_ms", "p95_ms", "round_ms", "p95_ratio", "rows_per_step", "queued_per_s")
    assert all(figures[f"flood_{name}"] > 0 for name in names if name != "p95_ratio")
    assert "flood_p95_ratio" in figures


def test_fairness_times_one_tenants_rollouts_beside_anothers_batch(server: Server, tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{server.home / 'catalog.db'}")
    _, key = catalog.create_key("a tenant with a large batch")
    catalog.close()
    figures = bench(server, "fairness.py", tmp_path / "fairness.json", "--flooding-key", key)
    names = ("idle_p95_ms", "loaded_p95_ms", "round_ms", "loaded_sample_line_p50_ms", "flood_cancelled_s")
    assert all(figures[f"tiny_{name}"] > 0 for name in names)
    assert figures["neighbour_ratio"] == figures["tiny_neighbour_ratio"]


def test_crowd_leaves_its_runs_and_comes_again(server: Server, tmp_path: Path) -> None:
    figures = bench(server, "crowd.py", tmp_path / "crowd.json")
    trips = ("forward_backward", "optim_step", "save", "sample")
    assert all(figures[f"{trip}_p50_ms"] > 0 for trip in trips)
    assert figures["after_20_ratio"] == max(figures[f"after_20_{trip}_ratio"] for trip in trips)


def test_reward_scores_rightly_alone_together_and_in_a_crowd(server: Server, tmp_path: Path) -> None:
    figures = bench(server, "reward.py", tmp_path / "reward.json")  # it checks every score itself
    assert all(figures[key] > 0 for key in ("p50_ms", "p95_ms", "crowd_p95_ms", "scores_per_s"))


def test_sample_serves_the_same_asks_on_every_side(tmp_path: Path) -> None:
    report, model = tmp_path / "sample.json", tmp_path / "tiny"
    tiny.make(model)
    command = [sys.executable, str(BENCH / "sample.py"), "--quick", "--threads", "1", "--json", str(report)]
    command += ["--model", str(model)]
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    figures = json.loads(report.read_text())["figures"]
    for name in ("static", "serial", "cb", "adapters"):
        assert figures[f"{name}_ratio_tiny"] > 0
    assert figures["ttft_idle_ms_tiny"] > 0 and figures["ttft_p50_ms_tiny"] <= figures["ttft_p95_ms_tiny"]


def test_autoscaling_loses_no_work_and_does_not_flap(tmp_path: Path) -> None:
    report = tmp_path / "autoscale.json"
    command = [sys.executable, str(BENCH / "autoscale.py"), "--quick", "--json", str(report)]
    subprocess.run(command, check=True, capture_output=True, timeout=280)
    figures = json.loads(report.read_text())["figures"]
    assert (figures["done"], figures["begun_again"]) == (figures["asked"], 0)
    assert 1 < figures["most_workers"] <= 4 and figures["last_workers"] == 0
    assert figures["turns"] < 2 * figures["bursts"]
    assert figures["most_demand"] <= figures["asked"]
