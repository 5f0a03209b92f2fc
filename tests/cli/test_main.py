import os
import subprocess
import sys
from pathlib import Path

HEAVY = {"torch", "celery", "sqlalchemy", "fastapi", "transformers", "redis", "pydantic", "numpy", "httpx"}


def _openrl(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENRL_")}
    command = [sys.executable, "-m", "openrl.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=clean | variables, stdin=subprocess.DEVNULL)


def test_the_command_imports_nothing_heavy() -> None:
    code = "import sys, openrl.cli.main; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


def test_help_names_the_commands() -> None:
    done = _openrl("--help")
    assert done.returncode == 0
    for command in ("serve", "gateway", "worker", "doctor", "keys", "models", "status", "migrate", "try"):
        assert command in done.stdout


def test_the_version_is_told() -> None:
    assert _openrl("--version").stdout.strip()[0].isdigit()


def test_an_error_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    done = _openrl("status", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"error: nothing is served from {tmp_path}; start it with: openrl serve\n"


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = _openrl("--debug", "status", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_component_that_an_operator_must_help_ends_with_78() -> None:
    done = _openrl("gateway")
    assert done.returncode == 78
    assert done.stderr.splitlines()[-1].startswith("error: OPENRL_REDIS_URL: set it")


def test_a_mistyped_setting_is_told() -> None:
    done = _openrl("models", "list", OPENRL_TRIAN__PACK_TOKENS="1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: OPENRL_TRIAN__PACK_TOKENS: no such setting")


def test_counts_of_workers_that_do_not_go_together_are_refused() -> None:
    for options in (["--train-workers", "2"], ["--separate", "--device-workers", "2"]):
        done = _openrl("serve", *options)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {options[-2]}: ")
