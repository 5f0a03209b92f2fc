"""`openrl serve` as a person meets it: what it prints, what it survives, what it leaves behind."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from living import Server, sdk_environment, wait_for

pytestmark = pytest.mark.live

PARTS = ("broker", "gateway", "device worker", "reward worker", "flower")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def served(home: Path) -> Iterator[Server]:
    server = Server.start(home)
    yield server
    if server.process.poll() is None:
        server.stop()


def _exports(server: Server) -> dict[str, str]:
    return dict(re.findall(r"^ *export (TINKER_\w+)=(\S+)$", server.log.read_text(), re.MULTILINE))


def _openrl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openrl.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=sdk_environment(), timeout=60)


def _is_healthy(server: Server) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/api/v1/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_it_prints_a_line_for_each_part_and_the_two_lines_to_export(served: Server) -> None:
    text = served.log.read_text()
    for part in PARTS:
        assert re.search(rf"✓ {part} is ready: .*pid {served.pid(part)}$", text, re.MULTILINE)
    assert _exports(served) == {"TINKER_BASE_URL": served.url, "TINKER_API_KEY": served.api_key}
    assert _is_healthy(served)


def test_its_status_can_be_asked(served: Server) -> None:
    done = _openrl("status", "--data-dir", str(served.home))
    assert done.returncode == 0
    assert done.stdout.startswith(f"{served.url} serves tiny")
    for part in PARTS:
        assert f"pid {served.pid(part)}" in done.stdout
    assert re.search(r"^  device  \S+: 128 slots; tiny; busy \d+% of \d+ s ", done.stdout, re.MULTILINE)
    assert re.search(r"^  reward  \S+: 2 slots$", done.stdout, re.MULTILINE)


def test_each_part_has_a_log(served: Server) -> None:
    names = {path.name for path in (served.home / "logs").iterdir()}
    assert names == {"broker.log", "gateway.log", "device.log", "reward.log", "flower.log"}


def test_a_second_one_on_the_same_data_is_refused_in_a_sentence(served: Server) -> None:
    done = _openrl("serve", "--base-model", "tiny", "--data-dir", str(served.home), "--port", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("error: data directory")
    assert f"(process {served.process.pid})" in done.stderr


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_comes_back(served: Server, part: str) -> None:
    port = served.url
    served.kill(part)
    wait_for("the gateway to answer", lambda: _is_healthy(served))
    assert served.url == port
    assert served.process.poll() is None


def test_sigterm_leaves_no_process_and_no_status_behind(served: Server) -> None:
    served.stop()  # fails where a process is left
    assert served.process.returncode == 0
    assert not (served.home / "serve.json").exists()


def test_the_next_start_prints_the_same_key_and_a_killed_one_leaves_no_process_behind(
    served: Server, home: Path
) -> None:
    before = _exports(served)["TINKER_API_KEY"]
    again = Server.start(home, "--no-flower", "--separate")
    assert _exports(again)["TINKER_API_KEY"] == before
    assert {"train worker", "sample worker"} <= set(again.status["parts"])
    family = psutil.Process(again.process.pid).children(recursive=True)
    os.kill(again.process.pid, signal.SIGKILL)
    again.process.wait()
    wait_for("everybody to be gone", lambda: not any(map(_runs, family)))


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_it_runs_a_program_and_ends_as_that_did(tmp_path: Path) -> None:
    ask = "import os; print(os.environ['TINKER_BASE_URL'], os.environ['TINKER_API_KEY'][:4]); raise SystemExit(3)"
    options = ["--base-model", "tiny", "--port", "0", "--no-flower", "--data-dir", str(tmp_path)]
    done = _openrl("serve", *options, "--", sys.executable, "-c", ask)
    assert done.returncode == 3, done.stderr
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+ tml-\n", done.stdout)
    assert not (tmp_path / "serve.json").exists()
