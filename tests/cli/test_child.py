import os
import signal
import sys
import time
from pathlib import Path

import pytest

from openrl.cli import child
from openrl.cli.child import Child, Component, make_room, start, stop, tail


def _component(tmp_path: Path, code: str, *, rank: int = 0, grace_seconds: float = 5.0, stdin: str = "") -> Component:
    return Component(
        name="part",
        command=(sys.executable, "-c", code),
        env=dict(os.environ),
        log=tmp_path / "logs" / f"part{rank}.log",
        address="",
        is_ready=lambda _pid: True,
        stop_rank=rank,
        grace_seconds=grace_seconds,
        stdin=stdin,
    )


def test_the_tail_of_a_log_leaves_out_empty_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("one\n\ntwo  \nthree\n\n")
    assert tail(log, 2) == ("two", "three")
    assert tail(tmp_path / "absent.log", 2) == ()


def test_a_log_grown_large_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "x.log"
    log.write_text("12345")
    make_room(log)
    assert log.exists()
    monkeypatch.setattr(child, "_LOG_LIMIT_BYTES", 4)
    make_room(log)
    assert not log.exists()
    assert (tmp_path / "x.log.1").read_text() == "12345"


def _said(part: Child, word: str) -> None:
    deadline = time.monotonic() + 10
    while word not in part.component.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


@pytest.mark.live
def test_a_child_reads_its_stdin_and_writes_its_log(tmp_path: Path) -> None:
    part = start(_component(tmp_path, "print('got', input())", stdin="this\n"))
    part.process.wait(timeout=10)
    assert tail(part.component.log, 1) == ("got this",)


@pytest.mark.live
def test_who_does_not_heed_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    part = start(_component(tmp_path, DEAF, grace_seconds=0.1))
    _said(part, "up")
    stop([part])
    assert part.exit_status() == -signal.SIGKILL


@pytest.mark.live
def test_hurry_cuts_the_grace_short(tmp_path: Path) -> None:
    part = start(_component(tmp_path, DEAF, grace_seconds=60.0))
    _said(part, "up")
    started = time.monotonic()
    stop([part], hurry=lambda: True)
    assert time.monotonic() - started < 5


@pytest.mark.live
def test_a_higher_rank_is_stopped_after_the_lower_one_has_ended(tmp_path: Path) -> None:
    slow = (
        "import signal, sys, time\n"
        "def end(*_): time.sleep(0.2); print('end', time.time(), flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(60)"
    )
    quick = slow.replace("time.sleep(0.2); ", "")
    last, first = start(_component(tmp_path, quick, rank=1)), start(_component(tmp_path, slow, rank=0))
    for part in (first, last):
        _said(part, "up")
    stop([last, first])
    ended = [float(tail(part.component.log, 1)[0].split()[1]) for part in (first, last)]
    assert ended == sorted(ended)


@pytest.mark.live
def test_what_a_child_started_goes_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}])\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    part = start(_component(tmp_path, code))
    _said(part, "up")
    grandchild = next(int(line) for line in part.component.log.read_text().splitlines() if line.isdigit())
    stop([part])
    deadline = time.monotonic() + 5
    while Path(f"/proc/{grandchild}/cmdline").exists() and Path(f"/proc/{grandchild}/cmdline").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
