"""What the benches share: a server to measure, a broker of one's own, and a report that names its machine."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from openrl.cli.broker import choose, configuration


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    api_key: str
    model: str


def add_report(parser: argparse.ArgumentParser) -> None:
    """What `Report` reads."""
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs; not for the record")
    parser.add_argument("--json", type=Path, help="also write the report there")


def add_common(parser: argparse.ArgumentParser) -> None:
    """What every bench of a server takes."""
    add_report(parser)
    parser.add_argument("--base-url", help="measure this server instead of starting one")
    parser.add_argument("--api-key", default=os.environ.get("TINKER_API_KEY"), help="its key [TINKER_API_KEY]")
    parser.add_argument("--model", help="the base model to use there")


@contextmanager
def serving(args: argparse.Namespace, model: str, *options: str) -> Iterator[Served]:
    """The server that the arguments name, or a fresh one on `model` that is stopped at the end."""
    if args.base_url:
        if not args.api_key:
            raise SystemExit("--base-url names a server that needs a key: give --api-key or set TINKER_API_KEY")
        yield Served(args.base_url.rstrip("/"), args.api_key, args.model or model)
        return
    with serving_in(args, model, *options) as (served, _):
        yield served


@contextmanager
def serving_in(args: argparse.Namespace, model: str, *options: str) -> Iterator[tuple[Served, Path]]:
    """A fresh server and its data directory."""
    with tempfile.TemporaryDirectory(prefix="openrl-bench-") as place:
        home = Path(place)
        command = [sys.executable, "-m", "openrl.cli.main", "serve", "--base-model", args.model or model]
        command += ["--port", "0", "--no-flower", "--data-dir", str(home), *options]
        with (home / "out").open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            while not (home / "serve.json").exists():
                if process.poll() is not None:
                    raise SystemExit((home / "out").read_text())
                time.sleep(0.1)
            status = json.loads((home / "serve.json").read_text())
            yield Served(status["url"], (home / "local_key").read_text().strip(), status["models"][0]), home
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def embedded_broker() -> Iterator[str]:
    """A broker of the script's own; answers its URL."""
    with tempfile.TemporaryDirectory(prefix="openrl-bench-") as place:
        folder = Path(place)
        broker = choose(folder)
        process = subprocess.Popen(broker.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            assert process.stdin is not None
            process.stdin.write(configuration(broker).encode())
            process.stdin.close()
            _until_it_answers(broker.url)
            yield broker.url
        finally:
            process.terminate()
            process.wait(10)


def _until_it_answers(url: str) -> None:
    import redis

    client = redis.Redis.from_url(url)
    for _ in range(200):
        try:
            client.ping()
            return
        except redis.exceptions.ConnectionError:
            time.sleep(0.05)
    raise SystemExit("the broker does not answer")


class Report(dict[str, float]):
    """Figures by name; `finish` prints them as `key: value` lines behind the machine's and the commit's."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        super().__init__()
        self._name, self._quick, self._json = name, args.quick, args.json

    def finish(self, digits: int = 3) -> None:
        facts = {"bench": self._name, "quick": self._quick, **machine()}
        figures = {name: round(value, digits) for name, value in self.items()}
        for name, value in {**facts, **figures}.items():
            print(f"{name}: {value}")
        if self._json:
            self._json.parent.mkdir(parents=True, exist_ok=True)
            self._json.write_text(json.dumps({**facts, "figures": figures}, indent=2) + "\n")


def machine() -> dict[str, str | int]:
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "python": platform.python_version(),
        "commit": _commit(),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    ask = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(ask, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return done.stdout.strip() or "unknown"
