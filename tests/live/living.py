"""Starting, watching and hurting a real server."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

START_SECONDS = 90
#: A name that the cookbook knows a renderer for.
COOKBOOK_NAME = "meta-llama/Llama-3.2-1B"


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)


def sdk_environment() -> dict[str, str]:
    """The environment without settings of ours or the SDK's that a developer may have set."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OPENRL_", "TINKER_"))}


@dataclass
class Server:
    """`openrl serve` in a process of its own."""

    home: Path
    process: subprocess.Popen[bytes]
    model: str = "tiny"
    log: Path = field(default_factory=Path)

    @classmethod
    def start(cls, home: Path, *options: str, model: str = "tiny", **settings: str) -> "Server":
        log = home / "serve.out"
        command = [sys.executable, "-m", "openrl.cli.main", "serve", "--base-model", model]
        command += ["--port", "0", "--flower-port", "0", "--data-dir", str(home), *options]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env={**sdk_environment(), **settings}
            )
        server = cls(home=home, process=process, model=model, log=log)
        wait_for("the server to be ready", server._ready_or_dead, START_SECONDS)
        assert process.poll() is None, log.read_text()
        return server

    def _ready_or_dead(self) -> bool:
        return self.process.poll() is not None or (self.home / "serve.json").exists()

    @property
    def status(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.home / "serve.json").read_text())
        return facts

    @property
    def url(self) -> str:
        return str(self.status["url"])

    @property
    def api_key(self) -> str:
        return (self.home / "local_key").read_text().strip()

    def pid(self, part: str) -> int:
        return int(self.status["parts"][part]["pid"])

    def kill(self, part: str) -> None:
        """SIGKILL one component; returns once its supervisor has started another."""
        before = self.pid(part)
        with suppress(ProcessLookupError):  # it died by itself a moment ago
            os.kill(before, signal.SIGKILL)
        wait_for(f"{part} to be restarted", lambda: self.pid(part) != before, START_SECONDS)

    def stop(self) -> None:
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        left = [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        assert not left, f"left behind: {left}"
