import os
import signal
import subprocess
import sys
import time

import pytest

from openrl.cli.orphans import Orphan, Watcher, read


def test_those_who_were_not_forgotten_are_left_in_the_order_of_their_ranks() -> None:
    lines = ["+ 10 3 5.0\n", "+ 11 0 20.0\n", "+ 12 1 5.0\n", "- 12\n", "- 99\n"]
    assert read(lines) == [Orphan(0, 11, 20.0), Orphan(3, 10, 5.0)]


def test_a_line_cut_short_by_the_supervisors_death_is_passed_over() -> None:
    assert read(["+ 10 3 5.0\n", "+ 11"]) == [Orphan(3, 10, 5.0)]


def _deaf_to_sigterm() -> subprocess.Popen[str]:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.live
def test_the_watcher_ends_who_is_left_when_its_supervisor_is_killed() -> None:
    deaf = _deaf_to_sigterm()
    code = (
        "import sys, time; from openrl.cli.orphans import Watcher\n"
        f"watcher = Watcher(); watcher.watch({deaf.pid}, 0, 0.2); print(watcher.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        watcher_pid = int(supervisor.stdout.readline())
        supervisor.kill()
    with deaf:
        assert deaf.wait(timeout=10) == -signal.SIGKILL
    _wait_until_gone(watcher_pid)


@pytest.mark.live
def test_a_watcher_that_is_closed_leaves_the_forgotten_alone() -> None:
    watcher = Watcher()
    with _deaf_to_sigterm() as deaf:
        watcher.watch(deaf.pid, 0, 0.2)
        watcher.forget(deaf.pid)
        watcher.close()
        assert deaf.poll() is None
        deaf.kill()


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")
