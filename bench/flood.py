"""Does a tenant notice that another one has queued ten thousand samples?

One tenant's samples are timed one by one, first on an idle server, then while another tenant's flood of the same size
waits and is worked on. Both speak plain HTTP; nobody polls for the flood, and what is left of it is called off at the
end. A round is the time that the flood takes from a row's first step to its last: whoever comes new may have to wait
for a row to become free.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bell import Connection, percentile
from driving import showing
from rig import Report, Served, add_common, serving, serving_in

SUBMITTERS = 4
WARM_UP = 10
PROMPT = list(range(17, 33))
TENANT = "the other one"


class Tenant:
    """Asks for samples with one key, through one sampler."""

    def __init__(self, server: Served, api_key: str, max_tokens: int) -> None:
        self._server, self._api_key, self._max_tokens = server, api_key, max_tokens
        first = self.connection()
        session = first.need("create_session", {"tags": [], "user_metadata": {}, "sdk_version": "bench"})["session_id"]
        request = {"session_id": session, "sampling_session_seq_id": 0, "base_model": server.model}
        self._sampler = first.need("create_sampling_session", request)["sampling_session_id"]
        self._numbers = itertools.count()

    def connection(self) -> Connection:
        return Connection(self._server.url, self._api_key)

    def submit(self, connection: Connection) -> str:
        request = {
            "num_samples": 1,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": PROMPT}]},
            "sampling_params": {"max_tokens": self._max_tokens, "temperature": 1.0, "stop": []},
            "sampling_session_id": self._sampler,
            "seq_id": next(self._numbers),
        }
        return str(connection.need("asample", request)["request_id"])

    def sample(self, connection: Connection) -> float:
        """Its milliseconds, from the request to the answer."""
        started = time.perf_counter()
        asked = {"request_id": self.submit(connection)}
        while (answer := connection.ask("POST", "retrieve_future", asked))[0] == 408:
            pass
        took = (time.perf_counter() - started) * 1e3
        assert answer[0] == 200 and not answer[1].startswith(b"{"), f"retrieve_future: {answer}"
        return took

    def flood(self, count: int) -> list[str]:
        """Submit so many; answers their ids."""

        def submit(share: int) -> list[str]:
            connection = self.connection()
            return [self.submit(connection) for _ in range(share)]

        shares = [count // SUBMITTERS + (number < count % SUBMITTERS) for number in range(SUBMITTERS)]
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            return [request_id for ids in pool.map(submit, shares) for request_id in ids]

    def call_off(self, ids: list[str]) -> bool:
        """The last ones first; answers whether the last one had not settled before."""
        connection = self.connection()
        for request_id in reversed(ids):
            connection.need("cancel_future", {"request_id": request_id})
        _, answer = connection.ask("POST", "retrieve_future", {"request_id": ids[-1]})
        return answer.startswith(b"{") and "error" in json.loads(answer)


@dataclass(frozen=True, slots=True)
class Steps:
    """How far the sample engines of the model had come when their workers last told; sums over the workers."""

    seconds: float  #: the workers' own clocks
    steps: int
    tokens: int


def steps_of(server: Served, after: float = 0.0) -> Steps:
    """As of an announcement after the clocks' `after`."""
    request = urllib.request.Request(f"{server.url}/openrl/v1/workers", headers={"X-API-Key": server.api_key})
    while True:
        with urllib.request.urlopen(request, timeout=30) as answer:
            workers = [worker for worker in json.load(answer) if server.model in worker["models"]]
        uses = [worker["use"] for worker in workers if worker["use"] and worker["role"] != "train"]
        if not uses:
            raise SystemExit("no worker tells of its sampling: a round cannot be measured")
        told = Steps(
            sum(use["seconds"] for use in uses),
            sum(use["sample"]["passes"] for use in uses),
            sum(use["sample"]["tokens"] for use in uses),
        )
        if told.seconds > after:
            return told
        time.sleep(0.05)


def measure(
    server: Served,
    flooding_key: str,
    *,
    flood: int = 10_000,
    probes: int = 100,
    max_tokens: int = 16,
    tell: Callable[[str], None] = lambda word: None,
) -> dict[str, float]:
    """The figures; `server` has the key of the tenant that is timed, `flooding_key` is of another tenant."""
    small, large = Tenant(server, server.api_key, max_tokens), Tenant(server, flooding_key, max_tokens)
    connection = small.connection()
    for _ in range(WARM_UP):
        small.sample(connection)
    tell("idle")
    idle = [small.sample(connection) for _ in range(probes)]
    tell("queueing")
    started = time.perf_counter()
    ids = large.flood(flood)
    queued = time.perf_counter() - started
    try:
        tell("flood")
        before = steps_of(server, steps_of(server).seconds)
        flooded = [small.sample(connection) for _ in range(probes)]
        after = steps_of(server, steps_of(server).seconds)
    finally:
        tell("calling the rest off")
        left = large.call_off(ids)
    if not left:
        raise SystemExit(f"the flood of {flood} was over before the {probes} samples were: take a larger one")
    return figures(idle, flooded, before, after, max_tokens) | {"flood_queued_per_s": flood / queued}


def figures(idle: list[float], flooded: list[float], before: Steps, after: Steps, max_tokens: int) -> dict[str, float]:
    steps, seconds = after.steps - before.steps, after.seconds - before.seconds
    round_ms = seconds / steps * max_tokens * 1e3
    idle_p95, flood_p95 = percentile(idle, 95), percentile(flooded, 95)
    return {
        "flood_idle_p50_ms": percentile(idle, 50),
        "flood_idle_p95_ms": idle_p95,
        "flood_p50_ms": percentile(flooded, 50),
        "flood_p95_ms": flood_p95,
        "flood_round_ms": round_ms,
        "flood_p95_ratio": (flood_p95 - round_ms) / idle_p95,
        "flood_rows_per_step": (after.tokens - before.tokens) / steps,
        "flood_tokens_per_s": (after.tokens - before.tokens) / seconds,
    }


def new_key(home: Path) -> str:
    """Of another tenant, of a server with that data directory."""
    command = [sys.executable, "-m", "openrl.cli.main", "keys", "create", TENANT, "--data-dir", str(home)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser)
    parser.add_argument("--flooding-key", help="of another tenant, where --base-url names a server")
    parser.add_argument("--flood", type=int, default=10_000, help="samples queued by one tenant (default %(default)s)")
    parser.add_argument("--probes", type=int, default=100, help="samples timed of the other (default %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=16, help="of every sample (default %(default)s)")
    args = parser.parse_args()
    flood, probes = (2_500, 5) if args.quick else (args.flood, args.probes)
    report = Report("flood", args)
    with showing() as progress:
        bar = progress.add_task("starting", total=None)
        with two_tenants(args) as (server, key):
            report |= measure(
                server,
                key,
                flood=flood,
                probes=probes,
                max_tokens=args.max_tokens,
                tell=lambda word: progress.update(bar, description=word),
            )
    report.finish()


@contextmanager
def two_tenants(args: argparse.Namespace) -> Iterator[tuple[Served, str]]:
    """The server that the arguments name, or a fresh one; and the key of a second tenant."""
    if args.base_url:
        if not args.flooding_key:
            raise SystemExit("--base-url names a server that needs the key of a second tenant: give --flooding-key")
        with serving(args, "tiny") as server:
            yield server, args.flooding_key
    else:
        with serving_in(args, "tiny") as (server, home):
            yield server, new_key(home)


if __name__ == "__main__":
    main()
