"""What does a reward cost that runs the model's SQL: through gateway, ledger, queue and sandbox, and back?

A server on the tiny model is started (or `--base-url` names one) and asked to score queries with the reward function
`sql_execution` on a small database: one text in one request at a time; one request of many texts; and as many
requests of one text each at once, each by a client of its own that waits for its answer. The clients run on the same
cores.
"""

import argparse
import http.client
import json
import statistics
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from bell import percentile, times_ms
from rig import Report, add_common, serving

SCHEMA = "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, city TEXT, amount REAL, year INTEGER);"
ROWS = [[number, f"c{number % 17}", f"city{number % 5}", number * 1.25, 2020 + number % 6] for number in range(200)]
GOLD = "SELECT city, sum(amount) FROM orders WHERE year > 2021 GROUP BY city"
CONTEXT = {"schema": SCHEMA, "seed": json.dumps({"orders": ROWS}), "gold": GOLD}
TEXTS = (
    f"```sql\n{GOLD};\n```",
    "SELECT city, total(amount) FROM orders WHERE NOT year <= 2021 GROUP BY 1 ORDER BY 2",
    "SELECT city FROM orders WHERE year > 2021",
    "SELECT town FROM orders",
)
WANTED = (1.0, 1.0, 0.0, 0.0)


class Scorer:
    """One kept-alive HTTP connection that asks for scores."""

    def __init__(self, base_url: str, api_key: str) -> None:
        self._http = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=60)
        self._headers = {"X-API-Key": api_key, "Content-Type": "application/json"}

    def score(self, count: int, first: int = 0) -> None:
        """So many texts in one request; checks the values."""
        numbers = [(first + at) % len(TEXTS) for at in range(count)]
        texts = [TEXTS[number] for number in numbers]
        request = {"key": uuid.uuid4().hex, "reward": "sql_execution", "texts": texts, "contexts": [CONTEXT] * count}
        op = self._ask("POST", "score", request)["op_id"]
        while (answer := self._ask("GET", f"ops/{op}?wait_seconds=20"))["status"] not in ("done", "failed"):
            pass
        assert answer["status"] == "done", answer
        assert answer["result"]["values"] == [WANTED[number] for number in numbers], answer

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        self._http.request(method, f"/openrl/v1/{path}", body=data, headers=self._headers)
        answer = self._http.getresponse()
        text = answer.read()
        assert answer.status == 200, f"{path}: {answer.status} {text[:300]!r}"
        return json.loads(text)


def crowd(scorers: list[Scorer], rounds: int) -> tuple[list[float], float]:
    """Milliseconds of each request, and scores a second, where all ask at once, wait, and ask again at once."""
    ready = threading.Barrier(len(scorers))

    def client(scorer: Scorer, number: int) -> list[float]:
        out = []
        for _ in range(rounds):
            ready.wait()
            out += times_ms(1, lambda: scorer.score(1, number))
        return out

    started = time.perf_counter()
    with ThreadPoolExecutor(len(scorers)) as pool:
        each = list(pool.map(client, scorers, range(len(scorers))))
    return [ms for times in each for ms in times], len(scorers) * rounds / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser)
    parser.add_argument("--rounds", type=int, default=200, help="of each kind (default %(default)s)")
    parser.add_argument("--at-once", type=int, default=64, help="texts (default %(default)s)")
    args = parser.parse_args()
    rounds, many = (10 if args.quick else args.rounds), args.at_once
    report = Report("reward", args)

    with serving(args, "tiny") as server:
        scorers = [Scorer(server.url, server.api_key) for _ in range(many)]
        times_ms(10, lambda: scorers[0].score(1))
        single = times_ms(rounds, lambda: scorers[0].score(1))
        times_ms(2, lambda: scorers[0].score(many))
        together = times_ms(rounds, lambda: scorers[0].score(many))
        crowd(scorers, 1)
        crowded, per_second = crowd(scorers, max(2, rounds // 10))
    report["p50_ms"] = statistics.median(single)
    report["single_p95_ms"] = percentile(single, 95)
    report["request_p50_ms"] = statistics.median(together)
    report["p95_ms"] = percentile(together, 95)
    report["request_scores_per_s"] = many * 1e3 / statistics.median(together)
    report["crowd_p50_ms"] = statistics.median(crowded)
    report["crowd_p95_ms"] = percentile(crowded, 95)
    report["scores_per_s"] = per_second
    report.finish()


if __name__ == "__main__":
    main()
