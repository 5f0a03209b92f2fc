"""Every kind of process is killed while three clients train, and nobody notices: a short run of the bench."""

import subprocess
import sys
from pathlib import Path

import pytest
from living import sdk_environment

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

SEED = "39"  #: every part comes up
SCRIPT = Path(__file__).parents[2] / "bench" / "chaos.py"


def test_three_clients_notice_nothing_of_five_kills() -> None:
    words = ["--kills", "5", "--steps", "40", "--seed", SEED]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, env=sdk_environment(), timeout=350
    )
    assert done.returncode == 0, done.stderr[-3000:]
    figures = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert figures["kills"] == "5.0"
    for part in ("gateway", "device_worker", "reward_worker", "broker"):
        assert float(figures[f"kills_{part}"]) >= 1
    for what in ("client_errors", "lost", "doubled", "samples_differing"):
        assert figures[what] == "0.0", done.stderr[-3000:]
    assert float(figures["weights_max_rel_diff"]) < 1e-3
