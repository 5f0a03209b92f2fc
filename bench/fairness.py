"""Does a tenant who wants a single rollout notice that another one has queued ten thousand?

A rollout goes through everything: it is created, stands in line, is sampled, waits for its reward, is scored and comes
over the event stream. One tenant's are timed one by one through the client, first on an idle server, then while another
tenant's batch of `--flood` prompts waits and is worked on, whose rest is called off at the end. Twice: with an engine
that is simulated, so that only the service has to compute, and with the tiny model on the processors that the service
runs on.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import httpx
from bell import percentile
from driving import showing, started
from flood import Steps, new_key, steps_of
from rig import Report, Served, add_common, serving, serving_in

import openrl
from openrl.cli.home import read_status
from openrl.client import Batch

WARM_UP = 5
ANSWER = {"answer": 7}
PATIENCE_SECONDS = 180.0
LIMIT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Of one rollout, in milliseconds; a line is everything from the op before to the claim of this one."""

    all: float  #: as the client sees it
    created: float  #: of these, until it had the batch's id
    sample_line: float
    sampled: float
    reward_line: float
    scored: float

    @property
    def around(self) -> float:
        """What is neither in a line nor worked on: requests and the stream."""
        return self.all - self.sample_line - self.sampled - self.reward_line - self.scored


class Tenant:
    def __init__(self, server: Served, api_key: str, max_tokens: int) -> None:
        self._model, self._max_tokens = server.model, max_tokens
        self._client = openrl.Client(server.url, api_key)
        self._http = httpx.Client(base_url=f"{server.url}/openrl/v1/ops", headers={"x-api-key": api_key}, timeout=60)

    def batch(self, prompts: int) -> Batch:
        """A rollout of each prompt."""
        return self._client.rollouts.create(
            [openrl.Prompt(f"{number} + 7 =", ANSWER) for number in range(prompts)],
            base_model=self._model,
            group_size=1,
            sampling={"max_tokens": self._max_tokens, "temperature": 1.0, "stop": []},
            reward="numeric",
            progress=False,
        )

    def rollout(self) -> Times:
        """Of a single one."""
        began = time.perf_counter()
        batch = self.batch(1)
        created = time.perf_counter()
        (group,) = batch
        ended = time.perf_counter()
        assert len(group.rollouts) == 1, group.dropped
        sample, reward = (self._life(f"{batch.id}.0.{kind}") for kind in ("sample", "reward"))
        return Times(
            all=(ended - began) * 1e3,
            created=(created - began) * 1e3,
            sample_line=sample["claimed"] - sample["appended"],
            sampled=sample["settled"] - sample["claimed"],
            reward_line=reward["claimed"] - sample["settled"],
            scored=reward["settled"] - reward["claimed"],
        )

    def _life(self, op_id: str) -> dict[str, float]:
        """When what happened to it, in milliseconds."""
        op = self._http.get(op_id, params={"life": True}).raise_for_status().json()
        names = ("appended", "claimed", "settled")
        return {name: datetime.fromisoformat(op[f"{name}_at"]).timestamp() * 1e3 for name in names}


def measure(
    server: Served,
    flooding_key: str,
    *,
    flood: int,
    probes: int,
    max_tokens: int,
    tell: Callable[[str], None] = lambda word: None,
) -> dict[str, float]:
    """The figures; `server` has the key of the tenant that is timed, `flooding_key` is of another tenant."""
    small, large = Tenant(server, server.api_key, max_tokens), Tenant(server, flooding_key, max_tokens)
    for _ in range(WARM_UP):
        small.rollout()
    tell("idle")
    idle = [small.rollout() for _ in range(probes)]
    tell("queueing")
    began = time.perf_counter()
    batch = large.batch(flood)
    created = time.perf_counter() - began
    tell("flood")
    before = steps_of(server, steps_of(server).seconds)
    loaded = [small.rollout() for _ in range(probes)]
    after = steps_of(server, steps_of(server).seconds)
    tell("calling the rest off")
    began = time.perf_counter()
    state = batch.cancel()
    cancelled = time.perf_counter() - began
    if state.status != "cancelled":
        raise SystemExit(f"the flood of {flood} was over before the {probes} rollouts were: take a larger one")
    return figures(idle, loaded, before, after, max_tokens) | {
        "flood_created_s": created,
        "flood_cancelled_s": cancelled,
    }


def figures(idle: list[Times], loaded: list[Times], before: Steps, after: Steps, max_tokens: int) -> dict[str, float]:
    steps, seconds = after.steps - before.steps, after.seconds - before.seconds
    round_ms = seconds / steps * max_tokens * 1e3
    idle_p95, p95 = (percentile([each.all for each in some], 95) for some in (idle, loaded))
    told = {"neighbour_ratio": (p95 - round_ms) / idle_p95, "round_ms": round_ms, "rows_per_step": 0.0}
    told["rows_per_step"] = (after.tokens - before.tokens) / steps
    told["flood_rollouts_per_s"] = (after.tokens - before.tokens) / seconds / max_tokens
    for name, some in (("idle", idle), ("loaded", loaded)):
        for part in ("all", "created", "sample_line", "sampled", "reward_line", "scored", "around"):
            for share in (50, 95):
                key = f"{name}_p{share}_ms" if part == "all" else f"{name}_{part}_p{share}_ms"
                told[key] = percentile([getattr(each, part) for each in some], share)
    return told


@contextmanager
def simulated(server: Served, home: Path, step_ms: float) -> Iterator[Served]:
    """A worker with a simulated engine beside those that the server has."""
    env = {"OPENRL_REDIS_URL": read_status(home)["broker"], "OPENRL_DATA_DIR": str(home)}
    with started(sys.executable, "simulated.py", ["--step-ms", str(step_ms)], env, LIMIT_SECONDS) as load:
        there = replace(server, model="simulated")
        until = time.monotonic() + PATIENCE_SECONDS
        while not _served(there):
            if time.monotonic() > until:
                raise SystemExit("the simulated worker does not come up")
            time.sleep(0.2)
        yield there
        load.stop()


def _served(server: Served) -> bool:
    answer = httpx.get(f"{server.url}/openrl/v1/workers", headers={"x-api-key": server.api_key})
    return any(server.model in worker["models"] for worker in answer.raise_for_status().json())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser)
    parser.add_argument("--flooding-key", help="of another tenant, where --base-url names a server")
    parser.add_argument("--flood", type=int, default=10_000, help="prompts of one tenant (default %(default)s)")
    parser.add_argument("--probes", type=int, default=60, help="rollouts timed of the other (default %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=16, help="of every rollout (default %(default)s)")
    parser.add_argument("--step-ms", type=float, default=20, help="of the simulated engine (default %(default)s)")
    args = parser.parse_args()
    sizes = {"flood": args.flood, "probes": args.probes, "max_tokens": args.max_tokens}
    sizes |= {"flood": 2_000, "probes": 4} if args.quick else {}
    report = Report("fairness", args)
    with showing() as progress:
        bar = progress.add_task("starting", total=None)
        for name, server, key in engines(args):
            found = measure(
                server, key, **sizes, tell=lambda word, at=name: progress.update(bar, description=f"{at}: {word}")
            )
            report |= {f"{name}_{figure}": value for figure, value in found.items()}
    report["neighbour_ratio"] = max(value for name, value in report.items() if name.endswith("_neighbour_ratio"))
    report.finish()


def engines(args: argparse.Namespace) -> Iterator[tuple[str, Served, str]]:
    """Each by name, with the key of a second tenant: the model of the server that the arguments name, or of a fresh one
    and before it a simulated one beside."""
    if args.base_url:
        if not args.flooding_key:
            raise SystemExit("--base-url names a server that needs the key of a second tenant: give --flooding-key")
        with serving(args, "tiny") as server:
            yield server.model, server, args.flooding_key
        return
    with serving_in(args, "tiny") as (server, home):
        key = new_key(home)
        with simulated(server, home, args.step_ms) as there:
            yield "simulated", there, key
        yield server.model, server, key


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
