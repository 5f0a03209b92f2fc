"""Does anybody notice when processes die? Three SDK clients train and sample while components are killed at random.

First each client's loop runs undisturbed, then all three again on fresh runs of the same seeds while a killer sends
SIGKILL to the gateway, a device worker, the reward worker or the broker, waits until its supervisor has brought it
back, and goes on. In the end losses and weights must be those of the undisturbed runs to float32 rounding, the
optimizer must have stepped as often as it was asked to, the ledger must hold no unsettled op, and no client may have
seen an error.
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tinker
from rig import Report, add_common, serving_in
from safetensors.numpy import load

from openrl.catalog.repository import Catalog
from openrl.depot.filesystem import FsspecDepot
from openrl.domain.checkpoint import CheckpointPath

RANKS = (4, 8, 16)
PARTS = ("gateway", "device worker", "reward worker", "broker")


def datum(prompt: list[int], target: list[int]) -> tinker.Datum:
    tokens = prompt + target
    weights = [0.0] * (len(prompt) - 1) + [1.0] * len(target)
    inputs = {"target_tokens": tokens[1:], "weights": weights}
    return tinker.Datum(model_input=tinker.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


class Life:
    """One client's run, from creation to its last checkpoint."""

    def __init__(self, url: str, api_key: str, model: str, rank: int) -> None:
        self.service = tinker.ServiceClient(base_url=url, api_key=api_key)
        self.rank, self.model = rank, model
        self.losses: list[float] = []
        self.samples: list[list[int]] = []
        self.path = ""

    def live(self, steps: int, until: threading.Event | None = None) -> None:
        """`steps` steps; with `until`, spread over the time until it is set."""
        client = self.service.create_lora_training_client(self.model, rank=self.rank, seed=self.rank).result()
        target = [self.rank + 100, self.rank + 200, self.rank + 300]
        for step in range(steps):
            first = client.forward_backward([datum([11, 12, 13], target)], "cross_entropy")
            second = client.forward_backward([datum([21, 22], target)] * 2, "cross_entropy")
            stepped = client.optim_step(tinker.AdamParams(learning_rate=5e-3, grad_clip_norm=1.0))
            self.losses.append(first.result().metrics["loss:sum"] + second.result().metrics["loss:sum"])
            stepped.result()
            if step % 10 == 0:
                self._sample(client)
            while until is not None and step == steps - 2 and not until.wait(0.2):
                pass  # the last step comes when the last process has died
            if until is not None and not until.is_set():
                time.sleep(0.3)
        self.path = client.save_state("end").result().path

    def _sample(self, client: tinker.TrainingClient) -> None:
        params = tinker.SamplingParams(max_tokens=8, temperature=0.0, stop=[])
        sampler = client.save_weights_and_get_sampling_client().result()
        answer = sampler.sample(tinker.ModelInput.from_ints([11, 12, 13]), 1, params).result()
        self.samples.append(list(answer.sequences[0].tokens))


class Killer:
    def __init__(self, home: Path, kills: int, parts: tuple[str, ...], seed: int, pause_seconds: float) -> None:
        self.home, self.kills, self.parts, self.pause_seconds = home, kills, parts, pause_seconds
        self.random = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self.done = threading.Event()

    def pid(self, part: str) -> int:
        return int(json.loads((self.home / "serve.json").read_text())["parts"][part]["pid"])

    def _kill(self, part: str) -> int:
        """The process killed. One that died by itself a moment ago (a broken broker can do that) gets a successor."""
        while True:
            victim = self.pid(part)
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                time.sleep(0.1)
            else:
                return victim

    def run(self) -> None:
        try:
            for number in range(self.kills):
                time.sleep(self.random.uniform(0.2, 1.0) * self.pause_seconds)
                part = self.random.choice(self.parts)
                before = self._kill(part)
                self.killed[part] += 1
                while self.pid(part) == before:
                    time.sleep(0.1)
                print(f"{number + 1}/{self.kills} {part} killed and back", file=sys.stderr, flush=True)
        finally:
            self.done.set()


def saved(home: Path, api_key: str, path: str) -> tuple[dict[str, np.ndarray], int]:
    """The weights of a checkpoint by name, and the optimizer's steps."""
    catalog = Catalog(f"sqlite:///{home / 'catalog.db'}")
    checkpoint = catalog.checkpoint(catalog.tenant_of_key(api_key), CheckpointPath.parse(path))
    catalog.close()
    files = FsspecDepot(f"file://{home / 'depot'}").get_folder(checkpoint.key)
    return load(files["adapter_model.safetensors"]), int(load(files["optimizer.safetensors"])["step"][0])


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest difference between two adapters, relative to the largest weight."""
    largest = max(float(np.abs(weight).max()) for weight in one.values())
    return max(float(np.abs(one[name] - other[name]).max()) for name in one) / largest


def unsettled(broker_url: str) -> int:
    import redis

    client = redis.Redis.from_url(broker_url)
    rows = (client.hget(key, "status") for key in client.scan_iter("openrl:op:*"))
    return sum(status in (b"waiting", b"held") for status in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser)
    parser.add_argument("--kills", type=int, default=50, help="processes to kill (default %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="steps of each client (default %(default)s)")
    parser.add_argument("--pause", type=float, default=4.0, help="most seconds between kills (default %(default)s)")
    parser.add_argument("--device-workers", type=int, default=1, help="to spread runs over (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.base_url:
        parser.error("the processes of a server elsewhere cannot be killed; leave --base-url out")
    kills, steps = (4, 30) if args.quick else (args.kills, args.steps)
    report = Report("chaos", args)
    options = ("--dtype", "float32", "--device-workers", str(args.device_workers))
    parts = PARTS + tuple(f"device worker {number}" for number in range(2, args.device_workers + 1))

    with serving_in(args, "tiny", *options) as (server, home), ThreadPoolExecutor(len(RANKS) + 1) as pool:
        calm = [Life(server.url, server.api_key, server.model, rank) for rank in RANKS]
        for future in [pool.submit(life.live, steps) for life in calm]:
            future.result()
        killer = Killer(home, kills, parts, args.seed, args.pause)
        wild = [Life(server.url, server.api_key, server.model, rank) for rank in RANKS]
        lives = [pool.submit(life.live, steps, killer.done) for life in wild]
        killing = pool.submit(killer.run)
        errors = [error for future in [*lives, killing] if (error := future.exception()) is not None]
        for error in errors:
            print(f"client error: {error!r}", file=sys.stderr)
        report.update({f"kills_{part.replace(' ', '_')}": float(killer.killed[part]) for part in parts})
        report["kills"] = float(killer.killed.total())
        report["client_errors"] = float(len(errors))
        report["lost"] = float(unsettled(json.loads((home / "serve.json").read_text())["broker"]))
        if not errors:
            pairs = [
                (saved(home, server.api_key, one.path), saved(home, server.api_key, other.path))
                for one, other in zip(calm, wild, strict=True)
            ]
            report["doubled"] = float(sum(abs(other[1] - one[1]) for one, other in pairs))
            report["losses_max_rel_diff"] = max(
                float(np.max(np.abs(np.array(one.losses) - np.array(other.losses)))) / max(one.losses)
                for one, other in zip(calm, wild, strict=True)
            )
            report["samples_differing"] = float(
                sum(a != b for x, y in zip(calm, wild, strict=True) for a, b in zip(x.samples, y.samples, strict=True))
            )
            report["weights_max_rel_diff"] = max(distance(one[0], other[0]) for one, other in pairs)
    report.finish(digits=6)
    raise SystemExit(bool(errors))


if __name__ == "__main__":
    main()
