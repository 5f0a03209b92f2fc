"""Runs a load script on a server, under a Python of its own, and hears what it tells (see `lines`)."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rig import Served

ERRORS_SHOWN = 4000  #: last characters of what a load that failed had to say


@dataclass(frozen=True, slots=True)
class Side:
    """One of the servers compared, and the Python whose SDK it speaks."""

    name: str
    served: Served
    python: str = sys.executable


def add_reference(parser: argparse.ArgumentParser) -> None:
    """What `reference` reads."""
    parser.add_argument("--reference-url", help="another server, measured in turn under the same load")
    parser.add_argument("--reference-model", help="the base model's name there (default: as here)")
    parser.add_argument("--reference-python", default=sys.executable, help="with the SDK it speaks (default: this one)")
    parser.add_argument("--reference-key", default="tml-reference", help="its API key (default %(default)s)")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one load may take (default %(default)s)")


def reference(args: argparse.Namespace, ours: Served) -> Side | None:
    if not args.reference_url:
        return None
    served = Served(args.reference_url.rstrip("/"), args.reference_key, args.reference_model or ours.model)
    return Side("reference", served, args.reference_python)


class Load:
    """A load script at work. What it tells comes in the order told; its death before that is an exit with what it wrote
    on its standard error."""

    def __init__(self, process: subprocess.Popen[str], errors: Path, limit_seconds: float) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._errors, self._limit_seconds = process, errors, limit_seconds
        self._stdin: IO[str] = process.stdin
        self._stdout: IO[str] = process.stdout

    def until(self, event: str, other: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The facts told with `event`; `other` is called for every event before it."""
        for line in self._stdout:
            facts: dict[str, Any] = json.loads(line)
            if facts.pop("event") == event:
                return facts
            other()
        raise SystemExit(f"{self._death()}:\n{self._errors.read_text()[-ERRORS_SHOWN:]}")

    def _death(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return f"the load was killed at the limit of {self._limit_seconds:g} s, or by somebody else"
        return f"the load ended early ({code})"

    def go(self) -> None:
        self._say("go")

    def stop(self) -> None:
        """For one that ends at a signal only."""
        self._process.terminate()

    def ask(self, **facts: Any) -> None:
        """For a load that is told what to do, time after time; nothing at all ends it."""
        self._say(json.dumps(facts) if facts else "")

    def _say(self, line: str) -> None:
        self._stdin.write(line + "\n")
        self._stdin.flush()


@contextmanager
def loading(side: Side, script: str, options: Sequence[str], limit_seconds: float) -> Iterator[Load]:
    """Start `script` (a file beside this one) on the side's server; it is killed at the limit."""
    options = [*options, "--base-url", side.served.url, "--model", side.served.model]
    env = {"TINKER_API_KEY": side.served.api_key, "TINKER_TELEMETRY": "0"}
    with started(side.python, script, options, env, limit_seconds) as load:
        yield load


@contextmanager
def started(
    python: str, script: str, options: Sequence[str], env: Mapping[str, str], limit_seconds: float
) -> Iterator[Load]:
    """Start `script` (a file beside this one) with `env` on top of the environment; it is killed at the limit."""
    command = [python, str(Path(__file__).parent / script), *options]
    with tempfile.TemporaryDirectory(prefix="openrl-bench-") as place:
        errors = Path(place) / "stderr"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **env},
                text=True,
            )
        alarm = threading.Timer(limit_seconds, process.kill)
        alarm.start()
        try:
            yield Load(process, errors, limit_seconds)
            process.wait()
        finally:
            alarm.cancel()
            process.kill()
            process.communicate()


@contextmanager
def showing() -> Iterator[Progress]:
    """Bars on the standard error; where that is no terminal, a line for each when all is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield progress
