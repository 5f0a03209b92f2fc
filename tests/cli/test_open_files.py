import resource
import subprocess
import sys

SCRIPT = """
import resource
from openrl.cli.open_files import allow_many
allow_many()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def _limit_after(soft: int) -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_a_small_limit_is_raised_as_far_as_the_system_lets_it() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert _limit_after(256) == (65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard))
