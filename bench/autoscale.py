"""Does autoscaling on the exported metric lose work, flap, or let the backlog grow? Bursts of rewards, a gateway, and
real worker processes that KEDA's and the HPA's rules start and SIGTERM, from none to some and back to none.

Rewards sleep instead of computing, so that workers do not take the processor from each other; all the rules' times are
divided (`--faster`).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx
import redis
from keda import Rules, Scaler
from prometheus_client.parser import text_string_to_metric_families
from rig import Report, add_report, embedded_broker

from openrl.catalog.repository import Catalog
from openrl.cli.ports import free_port

SLOTS = 2  #: of one worker in line, and its target
MOST = 4
SLEEP_SECONDS = 0.5
CONTEXT = {"tests": json.dumps([{"call": "f", "args": [], "expected": 1}])}
TEXT = f"import time\ndef f():\n    time.sleep({SLEEP_SECONDS})\n    return 1"
TICK_SECONDS = 0.25


@dataclass
class Fleet:
    """Workers that were started, and those told to stop."""

    environment: dict[str, str]
    log: Path
    working: list[subprocess.Popen[bytes]] = field(default_factory=list)
    leaving: list[tuple[float, subprocess.Popen[bytes]]] = field(default_factory=list)
    drains: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    def scale(self, count: int) -> None:
        while len(self.working) < count:
            command = [sys.executable, "-m", "openrl.cli.main", "worker", "reward"]
            with self.log.open("ab") as out:
                self.working.append(subprocess.Popen(command, env=self.environment, stdout=out, stderr=out))
        while len(self.working) > count:
            worker = self.working.pop()
            worker.send_signal(signal.SIGTERM)
            self.leaving.append((time.monotonic(), worker))
        self._bury()

    def _bury(self) -> None:
        assert all(worker.poll() is None for worker in self.working), "a worker died by itself"
        for since, worker in [each for each in self.leaving if each[1].poll() is not None]:
            self.leaving.remove((since, worker))
            self.drains.append(time.monotonic() - since)
            self.statuses.append(worker.returncode)

    def stop(self) -> None:
        self.scale(0)
        while self.leaving:
            time.sleep(0.1)
            self._bury()


@dataclass
class Seen:
    """What happened, tick by tick."""

    demands: list[float] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)

    @property
    def turns(self) -> int:
        """How often the number of workers began to fall or to rise again."""
        steps = [b - a for a, b in pairwise(self.replicas) if a != b]
        return sum((a > 0) != (b > 0) for a, b in pairwise(steps))


@contextmanager
def gateway(broker: str, home: Path) -> Iterator[tuple[httpx.Client, int, dict[str, str]]]:
    """A client of it, its port for metrics, and the environment of its workers."""
    catalog = Catalog(f"sqlite:///{home / 'catalog.db'}")
    catalog.migrate()
    _, key = catalog.create_key("bench")
    catalog.close()
    port, metrics = free_port(), free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENRL_")}
    environment |= {
        "OPENRL_REDIS_URL": broker,
        "OPENRL_DATA_DIR": str(home),
        "OPENRL_WORKER__REWARD_PROCESSES": "1",
        "OPENRL_WORKER__SANDBOX": "limits",
        "OPENRL_WORKER__EVENTS": "false",
        "OPENRL_WORKER__DRAIN_SECONDS": "1",
    }
    own = environment | {"OPENRL_GATEWAY__PORT": str(port), "OPENRL_METRICS__PORT": str(metrics)}
    command = [sys.executable, "-m", "openrl.cli.main", "gateway"]
    with (home / "gateway.log").open("wb") as out:
        process = subprocess.Popen(command, env=own, stdout=out, stderr=out)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/openrl/v1", headers={"x-api-key": key}, timeout=30) as client:
        try:
            _until_ready(metrics, process)
            yield client, metrics, environment
        finally:
            process.terminate()
            process.wait(30)


def _until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        time.sleep(0.1)
    raise SystemExit("the gateway did not come up")


def demand(port: int) -> float | None:
    """As KEDA's metrics-api scaler reads it; None where it is not told."""
    with suppress(httpx.HTTPError):
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "openrl_queue_demand" and sample.labels["kind"] == "reward":
                    return sample.value
    return None


def ask(client: httpx.Client, count: int) -> list[str]:
    request = {"reward": "python_tests", "texts": [TEXT], "contexts": [CONTEXT]}
    return [client.post("score", json=request | {"key": uuid.uuid4().hex}).json()["op_id"] for _ in range(count)]


def replay(
    bursts: list[tuple[float, int]], rules: Rules, port: int, client: httpx.Client, fleet: Fleet
) -> tuple[Seen, list[str]]:
    """Ask for so many at these seconds, and scale until nobody is left."""
    scaler, seen, ops, began = Scaler(rules), Seen(), [], time.monotonic()
    left = list(bursts)
    while left or fleet.working or seen.demands[-1]:
        now = time.monotonic() - began
        while left and left[0][0] <= now:
            ops += ask(client, left.pop(0)[1])
        told = demand(port)
        fleet.scale(scaler.tick(now, told))
        seen.demands.append(seen.demands[-1] if told is None and seen.demands else told or 0.0)
        seen.replicas.append(len(fleet.working))
        time.sleep(TICK_SECONDS)
        assert now < 600, "it does not come to an end"
    return seen, ops


def ended(broker: str, ops: list[str]) -> tuple[int, int]:
    """How many are done, and how many were begun more often than once."""
    with redis.Redis.from_url(broker) as client:
        rows = [client.hmget(f"openrl:op:{op}", "status", "attempts") for op in ops]
    return sum(row[0] == b"done" for row in rows), sum(row[1] != b"1" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_report(parser)
    parser.add_argument("--faster", type=float, default=15.0, help="divides the rules' times (default %(default)s)")
    args = parser.parse_args()
    size = 12 if args.quick else 40
    bursts = [(0.0, size), (12.0, size), (14.0, size // 2)] + ([] if args.quick else [(70.0, size), (110.0, 1)])
    rules = Rules(target=SLOTS, most=MOST).faster(args.faster)
    report = Report("autoscale", args)
    with ExitStack() as closing:
        broker = closing.enter_context(embedded_broker())
        home = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="openrl-bench-")))
        client, port, environment = closing.enter_context(gateway(broker, home))
        fleet = Fleet(environment, home / "workers.log")
        closing.callback(fleet.stop)
        seen, ops = replay(bursts, rules, port, client, fleet)
        fleet.stop()
        done, again = ended(broker, ops)
    assert set(fleet.statuses) == {0}, "a worker that was told to stop did not end well"
    report["asked"], report["done"], report["begun_again"] = len(ops), done, again
    report["most_workers"], report["turns"] = max(seen.replicas), seen.turns
    report["bursts"] = len(bursts)
    report["most_demand"] = max(seen.demands)
    report["longest_drain_s"] = max(fleet.drains)
    report["last_workers"] = seen.replicas[-1]
    report.finish()


if __name__ == "__main__":
    main()
