import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from autoresearch import processes
from autoresearch.errors import ResearchError
from autoresearch.processes import MARK, Ending, Leash, Mark

SLEEP = "import time; time.sleep(60)"
#: Starts a process in a session of its own, tells its id, and ends or sleeps.
STRAY = f"""
import subprocess, sys
stray = subprocess.Popen([sys.executable, "-c", "{SLEEP}"], start_new_session=True)
print(stray.pid, flush=True)
"""


def run(tmp_path: Path, code: str, seconds: float = 10.0, **variables: str) -> tuple[Ending, str]:
    """How the code ended, and what it printed."""
    mark = Mark.fresh(tmp_path).of("1")
    running = processes.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        variables={"PATH": os.environ["PATH"], **variables},
        home=tmp_path / "home",
        log=tmp_path / "log",
        seconds=seconds,
        mark=mark,
    )
    return asyncio.run(running), (tmp_path / "log").read_text()


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_program_sees_what_was_named_and_places_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "mine")
    monkeypatch.setenv("NAMED", "yours")
    code = "import os, sys, json; print(json.dumps(dict(os.environ))); print(sys.stdin.read())"
    variables = processes.environment(["NAMED", "FIXED=a=b", "CACHE={record}/c"], "environment", Path("/r"))
    ending, said = run(tmp_path, code, **variables)
    seen = json.loads(said.splitlines()[0])
    assert ending.status == 0
    assert set(seen) - {"LC_CTYPE"} == {
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "NAMED",
        "FIXED",
        "CACHE",
        "HOME",
        "TMPDIR",
        MARK,
    }
    assert (seen["NAMED"], seen["FIXED"], seen["CACHE"]) == ("yours", "a=b", "/r/c")
    assert Path(seen["TMPDIR"]).is_relative_to(tmp_path) and Path(seen["HOME"]).is_relative_to(tmp_path)
    assert not (tmp_path / "home").exists()


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MISSING", raising=False)
    with pytest.raises(ResearchError, match=r"`agent\.environment` names MISSING, which is not set"):
        processes.environment(["MISSING"], "agent.environment", Path("/r"))


def test_a_status_is_told_with_both_streams_in_the_log(tmp_path: Path) -> None:
    ending, said = run(tmp_path, "import sys; print('out', flush=True); sys.exit('err')")
    assert ending.status == 1 and said == "out\nerr\n"


@pytest.mark.parametrize("deaf", [False, True])
def test_one_that_takes_too_long_is_ended_even_if_it_does_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: bool
) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.2)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    ending, said = run(tmp_path, f"{ignore}import os; print(os.getpid(), flush=True)\n{SLEEP}", seconds=0.5)
    assert ending.status is None and ending.seconds < 10
    assert is_gone(int(said))


@pytest.mark.parametrize("ends", [True, False])
def test_what_it_left_behind_is_ended_in_another_session_too(tmp_path: Path, ends: bool) -> None:
    ending, said = run(tmp_path, STRAY + ("" if ends else SLEEP), seconds=0.6)
    assert (ending.status == 0) is ends
    assert is_gone(int(said))


def test_others_are_left_alone(tmp_path: Path) -> None:
    """Other attempts of the same start, and other records whose names begin alike."""
    mark = Mark.fresh(tmp_path)
    others = [mark.of("2"), mark.of("11"), Mark(f"{tmp_path}x", "other", "1")]
    left = [subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, MARK: other.text()}) for other in others]
    try:
        processes.kill_marked(mark.of("1"))
        processes.kill_earlier(mark)
        assert [process.poll() for process in left] == [None, None, None]
        assert processes.kill_earlier(Mark.fresh(tmp_path)) == 2
        assert [is_gone(process.pid) for process in left] == [True, True, False]
    finally:
        for process in left:
            process.kill()
            process.wait()


def test_a_leash_ends_them_when_the_harness_is_gone(tmp_path: Path) -> None:
    """However that went: here its end of the pipe closes."""
    mark = Mark.fresh(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, MARK: mark.of("3").text()})
    leash = Leash(mark)
    time.sleep(0.2)
    assert process.poll() is None
    leash.close()
    assert process.wait(5) < 0
