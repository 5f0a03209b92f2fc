"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from living import Server, sdk_environment

pytestmark = pytest.mark.live

README = Path(__file__).parents[2] / "README.md"


def test_the_loop_in_the_readme_learns(real_server: Server) -> None:
    found = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    where = {"TINKER_BASE_URL": real_server.url, "TINKER_API_KEY": real_server.api_key}
    done = subprocess.run(
        [sys.executable, "-c", found.group(1)],
        capture_output=True,
        text=True,
        env=sdk_environment() | where,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    losses = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 2
