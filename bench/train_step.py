"""What does the train engine make of its machine? Tokens per second of forward_backward, against a bare loop.

The bare loop is PyTorch, Transformers and PEFT on the same base weights, adapter, rows and dtype: rows stacked, one
forward, one backward. Both sides take turns and their medians are compared; a datum's tokens count whether they are
computed or shared. `packed64` and `fused_optim` compare the engine with itself: many tenants in one call, or one
after another.
`page_in` is a run's way from the depot on the local disk to the device, `snapshot` the way back.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch
from rig import Report, add_report
from transformers.utils.logging import disable_progress_bar

from openrl import config
from openrl.depot.filesystem import FsspecDepot
from openrl.domain.datum import Datum, Loss
from openrl.domain.ids import DepotKey
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from openrl.domain.tensor import DType
from openrl.models.catalogue import resolve
from workers.model.arrays import to_domain
from workers.model.base import load_base
from workers.model.devices import choose_device, choose_dtype, set_threads
from workers.train.engine import Batch, TrainEngine

GROUP = 8
#: Prompt and completion of a group's datums, in tokens; `alone` shares nothing.
SHAPES = {"alone": (0, 128), "prefix_equal": (64, 64), "prefix_long": (256, 64)}
TENANTS, TENANT_TOKENS = 64, 16
PAGED_MB = 10.0  #: of the adapter; its moments are twice as much


def rows(prompt: int, completion: int, vocab: int, count: int = GROUP) -> torch.Tensor:
    """Random rows [count, prompt + completion + 1] with the prompt in common; the last token is only a target."""
    start = torch.randint(0, vocab, (1, prompt)).expand(count, -1)
    return torch.cat([start, torch.randint(0, vocab, (count, completion + 1))], 1)


def weights_of(row: torch.Tensor, prompt: int) -> torch.Tensor:
    """1 where the target is part of the completion."""
    return (torch.arange(1, len(row)) >= prompt).float()


def datum(row: torch.Tensor, prompt: int) -> Datum:
    return Datum(
        tokens=to_domain(row[:-1], DType.INT32),
        inputs={
            "target_tokens": to_domain(row[1:], DType.INT64),
            "weights": to_domain(weights_of(row, prompt), DType.FLOAT32),
        },
    )


def batch(run: str, some: torch.Tensor, prompt: int) -> Batch:
    return Batch(run_id=run, data=[datum(row, prompt) for row in some], loss=Loss.CROSS_ENTROPY)


class Bare:
    """The loop one would write without this project."""

    def __init__(self, source: str, adapter: dict[str, bytes], device: torch.device, dtype: torch.dtype) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, attn_implementation="sdpa").to(device)
        with tempfile.TemporaryDirectory() as folder:
            for name, data in adapter.items():
                Path(folder, name).write_bytes(data)
            self.model: Any = PeftModel.from_pretrained(model, folder, is_trainable=True).eval()
        self.device = device

    def step(self, some: torch.Tensor, prompt: int) -> float:
        self.model.zero_grad(set_to_none=True)
        tokens = some.to(self.device)
        weights = torch.stack([weights_of(row, prompt) for row in some]).to(self.device)
        logits = self.model(input_ids=tokens[:, :-1], use_cache=False).logits.float()
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        loss = (each * weights.flatten()).sum()
        loss.backward()
        return float(loss.detach())


class Ours:
    def __init__(self, engine: TrainEngine) -> None:
        self.engine = engine

    def step(self, batches: list[Batch]) -> float:
        """One call; its loss."""
        results = self.engine.forward_backward(batches)
        for each in batches:
            self.engine.run(each.run_id).grad = None
        return sum(result.metrics["loss:sum"] for result in results if isinstance(result, BatchResult))


def alternating(rounds: int, *calls: Callable[[], object], before: Callable[[], object] = lambda: None) -> list[float]:
    """Median seconds of each call, after one round to warm up; `before` goes before each and is not counted."""
    times: list[list[float]] = [[] for _ in calls]
    for round_ in range(rounds + 1):
        for call, kept in zip(calls, times, strict=True):
            before()
            started = time.perf_counter()
            call()
            if round_:
                kept.append(time.perf_counter() - started)
    return [statistics.median(kept) for kept in times]


def against_bare(report: Report, name: str, ours: Ours, bare: Bare, rounds: int) -> None:
    prompt, completion = SHAPES[name]
    some = rows(prompt, completion, ours.engine.base.vocab_size)
    mine = batch("bench", some, prompt)
    difference = abs(ours.step([mine]) / bare.step(some, prompt) - 1)
    assert difference < 0.01, f"{name}: the losses differ by {difference:.1%}, so the two sides do not do the same work"
    seconds, theirs = alternating(rounds, lambda: ours.step([mine]), lambda: bare.step(some, prompt))
    report[f"{name}_tokens_per_s"] = mine.tokens / seconds
    report[f"{name}_bare_tokens_per_s"] = mine.tokens / theirs
    report[f"{name}_ratio"] = theirs / seconds


def packed(report: Report, ours: Ours, rank: int, rounds: int) -> None:
    tenants = [f"tenant {number}" for number in range(TENANTS)]
    for number, tenant in enumerate(tenants):
        ours.engine.create(tenant, LoraSpec(rank=rank, seed=number, train_unembed=False))
    vocab = ours.engine.base.vocab_size
    batches = [batch(tenant, rows(0, TENANT_TOKENS, vocab, 1), 0) for tenant in tenants]
    together, apart = alternating(rounds, lambda: ours.step(batches), lambda: [ours.step([each]) for each in batches])
    tokens = TENANTS * TENANT_TOKENS
    report["packed64_tokens_per_s"] = tokens / together
    report["one_by_one_tokens_per_s"] = tokens / apart
    report["packed64_ratio"] = apart / together


def fused_optim(report: Report, engine: TrainEngine, rounds: int) -> None:
    """Optimizer steps of the tenants of `packed`, as one call or one after another."""
    tenants = [f"tenant {number}" for number in range(TENANTS)]
    gradients = {tenant: torch.full_like(engine.run(tenant).weights, 1e-3) for tenant in tenants}

    def step(fused: bool) -> None:
        for tenant, gradient in gradients.items():
            engine.run(tenant).grad = gradient
        asked = [(tenant, AdamParams(learning_rate=1e-6)) for tenant in tenants]
        engine.optim_steps(asked) if fused else [engine.optim_step(*each) for each in asked]

    together, apart = alternating(rounds, lambda: step(True), lambda: step(False))
    report["fused_optim_ms"] = 1e3 * together
    report["fused_optim_ratio"] = apart / together


def paged(report: Report, engine: TrainEngine, rounds: int) -> None:
    """An adapter of about 10 MB with its moments, from the disk itself: what the system keeps of files is dropped."""
    engine.create("thin", LoraSpec(rank=1, seed=0, train_unembed=False))
    rank = max(1, round(PAGED_MB * 1e6 / engine.run("thin").weights.nbytes))
    engine.create("paged", LoraSpec(rank=rank, seed=0, train_unembed=False))
    run = engine.run("paged")
    for vector in run.vectors:
        vector.normal_(std=0.01)
    home = config.load().home
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="openrl-bench-", dir=home) as folder:
        depot, numbers = FsspecDepot(f"file://{folder}"), count()
        depot.put_folder(DepotKey("adapter"), engine.policy("paged"))
        depot.put_folder(DepotKey("run"), engine.snapshot("paged"))
        page_in, adapter_in, snapshot, copied = alternating(
            rounds,
            lambda: engine.put("back", engine.restored(depot.get_folder(DepotKey("run")))),
            lambda: engine.load("back", depot.get_folder(DepotKey("adapter")), with_optimizer=False),
            lambda: depot.put_folder(DepotKey(f"run{next(numbers)}"), engine.snapshot("paged")),
            lambda: engine.snapshot("paged"),
            before=lambda: forgotten(Path(folder)),
        )
    report["paged_adapter_mb"], report["paged_run_mb"] = run.weights.nbytes / 1e6, run.size_bytes / 1e6
    report["page_in_ms"], report["adapter_in_ms"] = page_in * 1e3, adapter_in * 1e3
    report["snapshot_ms"], report["snapshot_copy_ms"] = snapshot * 1e3, copied * 1e3


def forgotten(folder: Path) -> None:
    """Have the system drop what it keeps of the files there, where it can be asked to."""
    for path in folder.rglob("*"):
        if path.is_file() and hasattr(os, "posix_fadvise"):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_report(parser)
    parser.add_argument("--model", default="smollm2-135m", help="name or folder (default %(default)s; quick: tiny)")
    parser.add_argument("--dtype", default="auto", help="auto, float32 or bfloat16 (default %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default %(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: one per core (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds of each pair (default %(default)s)")
    parser.add_argument(
        "--rank", type=int, default=16, help="of the adapter beside the bare loop (default %(default)s)"
    )
    parser.add_argument("--tenant-rank", type=int, default=8, help="of the 64 tenants' (default %(default)s)")
    args = parser.parse_args()
    if args.quick:
        args.model, args.rounds = "tiny" if args.model == parser.get_default("model") else args.model, 2
    torch.manual_seed(0)
    disable_progress_bar()
    source = str(resolve(args.model, config.load().home))
    threads, device = set_threads(args.threads), choose_device(args.device)
    dtype = choose_dtype(args.dtype, device)
    report = Report("train_step", args)
    engine = TrainEngine(load_base(source, device=device, dtype=dtype))
    engine.create("bench", LoraSpec(rank=args.rank, seed=0, train_unembed=False))
    ours = Ours(engine)
    bare = Bare(source, engine.policy("bench"), device, dtype)
    for name in SHAPES:
        against_bare(report, name, ours, bare, args.rounds)
    packed(report, ours, args.tenant_rank, args.rounds)
    fused_optim(report, engine, args.rounds)
    paged(report, engine, args.rounds)
    print(f"model: {args.model}\ndevice: {device}\ndtype: {str(dtype).removeprefix('torch.')}\nthreads: {threads}")
    report.finish()


if __name__ == "__main__":
    main()
