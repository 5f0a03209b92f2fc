"""What does the control plane cost? An empty op (a sample of nothing), HTTP to HTTP, through the whole stack.

A server on the tiny model is started (or `--base-url` names one), warmed up, and asked for `num_samples: 0`: the
request is checked, written to the ledger, rung, claimed by the device worker, settled at once and read back. The hops
are measured one by one too: an HTTP request that does nothing, the submission alone, the ledger's three scripts on a
broker of this script's own, and a Celery bell from ring to body.
"""

import argparse
import http.client
import itertools
import json
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from rig import Report, add_common, embedded_broker, serving

TOKENS = [5, 6, 7, 8]


class Connection:
    """One kept-alive HTTP connection, as thin as the standard library allows."""

    def __init__(self, base_url: str, api_key: str) -> None:
        self._http = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=60)
        self._headers = {"X-API-Key": api_key, "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        self._http.request(method, f"/api/v1/{path}", body=data, headers=self._headers)
        answer = self._http.getresponse()
        return answer.status, answer.read()

    def need(self, path: str, body: object) -> dict:
        status, data = self.ask("POST", path, body)
        assert status == 200, f"{path}: {status} {data[:300]!r}"
        return json.loads(data)


class EmptyOps:
    """Submits samples of nothing through one sampler and waits for them."""

    def __init__(self, base_url: str, api_key: str, model: str) -> None:
        self.base_url, self.api_key = base_url, api_key
        first = self.connection()
        session = first.need(
            "create_session", {"tags": [], "user_metadata": {}, "sdk_version": "bench", "type": "create_session"}
        )["session_id"]
        self.sampler = first.need(
            "create_sampling_session",
            {
                "session_id": session,
                "sampling_session_seq_id": 0,
                "base_model": model,
                "type": "create_sampling_session",
            },
        )["sampling_session_id"]
        self._numbers = itertools.count()

    def connection(self) -> Connection:
        return Connection(self.base_url, self.api_key)

    def submit(self, connection: Connection) -> str:
        request = {
            "num_samples": 0,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": TOKENS}]},
            "sampling_params": {"max_tokens": 1},
            "sampling_session_id": self.sampler,
            "seq_id": next(self._numbers),
            "type": "sample",
        }
        return connection.need("asample", request)["request_id"]

    def wait(self, connection: Connection, request_id: str) -> None:
        while True:
            status, data = connection.ask("POST", "retrieve_future", {"request_id": request_id})
            if status != 408:
                assert status == 200 and not data.startswith(b"{"), f"retrieve_future: {status} {data[:300]!r}"
                return

    def one(self, connection: Connection) -> None:
        self.wait(connection, self.submit(connection))


def times_ms(count: int, call: Callable[[], object]) -> list[float]:
    out = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        out.append((time.perf_counter() - started) * 1e3)
    return out


def percentile(values: list[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(q / 100 * len(values)))]


def throughput(ops: EmptyOps, count: int, workers: int) -> float:
    """Ops per second with `workers` clients, each one op at a time."""
    each = count // workers
    ready = threading.Barrier(workers + 1)

    def client() -> None:
        connection = ops.connection()
        ops.one(connection)
        ready.wait()
        for _ in range(each):
            ops.one(connection)

    with ThreadPoolExecutor(workers) as pool:
        done = [pool.submit(client) for _ in range(workers)]
        ready.wait()
        started = time.perf_counter()
        for future in done:
            future.result()
        return each * workers / (time.perf_counter() - started)


def ledger_hop(redis_url: str, count: int) -> list[float]:
    """Append, claim and settle one empty op, straight on the ledger."""
    import redis

    from openrl.depot.filesystem import FsspecDepot
    from openrl.domain.ids import OpId, TenantId
    from openrl.domain.op import Bell, RewardOp, ScoreTexts
    from openrl.domain.outcome import Scores
    from openrl.ledger.port import Limits
    from openrl.ledger.redis import RedisLedger

    client = redis.Redis.from_url(redis_url)
    ledger = RedisLedger(client, FsspecDepot("memory://"), lambda bell: None, holder="bench", limits=Limits())
    action = ScoreTexts(reward="exact", texts=(), contexts=())

    def one() -> None:
        op_id = OpId(uuid.uuid4().hex)
        ledger.append(
            RewardOp(id=op_id, tenant=TenantId("bench"), action=action),
            Bell(op=op_id, queue="q", task="t", summary="", line="bench"),
        )
        held = ledger.claim(op_id)
        assert held is not None
        ledger.done(held, Scores(values=()))

    times_ms(20, one)
    return times_ms(count, one)


def bell_hop(redis_url: str, count: int) -> list[float]:
    """A Celery message from ring to the task's first line, in a threads pool of this process."""
    from celery.contrib.testing.worker import start_worker

    from openrl.domain.ids import OpId
    from openrl.domain.op import Bell
    from queues.app import make_app
    from queues.bell import ringer

    app = make_app(redis_url)
    heard = threading.Event()

    @app.task(name="bench.bell")
    def listen(op_id: str) -> None:
        heard.set()

    ring = ringer(app)

    def one() -> None:
        heard.clear()
        ring(Bell(op=OpId(uuid.uuid4().hex), queue="bench", task="bench.bell", summary=""))
        assert heard.wait(10)

    with start_worker(app, pool="threads", concurrency=2, queues=["bench"], perform_ping_check=False):
        times_ms(20, one)
        return times_ms(count, one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser)
    parser.add_argument("--ops", type=int, default=1000, help="ops one at a time (default %(default)s)")
    parser.add_argument("--flood", type=int, default=6000, help="ops for the throughput (default %(default)s)")
    parser.add_argument("--clients", type=int, default=32, help="clients at once for it (default %(default)s)")
    args = parser.parse_args()
    count, flood = (100, 640) if args.quick else (args.ops, args.flood)
    report = Report("bell", args)

    with serving(args, "tiny") as server:
        ops = EmptyOps(server.url, server.api_key, server.model)
        connection = ops.connection()
        times_ms(50, lambda: ops.one(connection))
        report["http_p50_ms"] = statistics.median(times_ms(count, lambda: connection.ask("GET", "healthz")))
        submits = []

        def one() -> None:
            started = time.perf_counter()
            request_id = ops.submit(connection)
            submits.append((time.perf_counter() - started) * 1e3)
            ops.wait(connection, request_id)

        whole = times_ms(count, one)
        report["submit_p50_ms"] = statistics.median(submits)
        ops_per_s = throughput(ops, flood, args.clients)
    with embedded_broker() as redis_url:
        report["ledger_p50_ms"] = statistics.median(ledger_hop(redis_url, count))
        report["bell_p50_ms"] = statistics.median(bell_hop(redis_url, count))
    report["p50_ms"] = percentile(whole, 50)
    report["p99_ms"] = percentile(whole, 99)
    report["ops_per_s"] = ops_per_s
    report.finish()


if __name__ == "__main__":
    main()
