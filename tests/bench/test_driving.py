import argparse
import sys
from pathlib import Path

import driving
import pytest

GOOD = """
import json, os, sys
print(json.dumps({"event": "ready", "steps": 2}), flush=True)
assert sys.stdin.readline() == "go\\n"
for _ in range(2):
    print(json.dumps({"event": "step"}), flush=True)
print(json.dumps({"event": "done", "argv": sys.argv[1:], "key": os.environ["TINKER_API_KEY"]}), flush=True)
"""


def a_side(**options: str) -> object:
    return driving.Side("it", driving.Served("http://127.0.0.1:1", "tml-key", "tiny"), **options)


def test_a_load_waits_for_go_and_tells_its_steps_before_its_end(tmp_path: Path) -> None:
    script = tmp_path / "load.py"
    script.write_text(GOOD)
    steps = []
    with driving.loading(a_side(), str(script), ["--jobs", "1"], 30) as load:
        assert load.until("ready") == {"steps": 2}
        load.go()
        done = load.until("done", lambda: steps.append(1))
    assert len(steps) == 2
    assert done["argv"] == ["--jobs", "1", "--base-url", "http://127.0.0.1:1", "--model", "tiny"]
    assert done["key"] == "tml-key"


def test_a_load_that_fails_is_an_exit_with_what_it_said(tmp_path: Path) -> None:
    script = tmp_path / "load.py"
    script.write_text("raise SystemExit('no such model')")
    with (
        pytest.raises(SystemExit, match=r"(?s)ended early \(1\).*no such model"),
        driving.loading(a_side(), str(script), [], 30) as load,
    ):
        load.until("done")


def test_a_load_that_says_nothing_is_killed_at_the_limit(tmp_path: Path) -> None:
    script = tmp_path / "load.py"
    script.write_text("import time; time.sleep(100)")
    with (
        pytest.raises(SystemExit, match=r"killed at the limit of 0.2 s"),
        driving.loading(a_side(), str(script), [], 0.2) as load,
    ):
        load.until("done")


def test_a_load_runs_under_the_python_of_its_side(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho \'{{"event": "done", "as": "other"}}\'\nexec {sys.executable} -c ""\n')
    python.chmod(0o755)
    with driving.loading(a_side(python=str(python)), "rl_load.py", [], 30) as load:
        assert load.until("done") == {"as": "other"}


def test_without_a_url_there_is_no_reference() -> None:
    parser = argparse.ArgumentParser()
    driving.add_reference(parser)
    ours = driving.Served("http://127.0.0.1:1", "tml-key", "tiny")
    assert driving.reference(parser.parse_args([]), ours) is None
    there = driving.reference(parser.parse_args(["--reference-url", "http://127.0.0.1:2/"]), ours)
    assert there.served == driving.Served("http://127.0.0.1:2", "tml-reference", "tiny")
    assert there.python == sys.executable
