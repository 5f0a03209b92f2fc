"""Two processes against one: the test is rank 0, the other is a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM

from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import AdapterUnsupported, DatumTooLarge, FieldInvalid, GradientNotFinite, RunNotFound
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams, LoraSpec
from openrl.domain.tensor import Tensor as Array
from workers.model.base import load_base
from workers.train.budget import Budget
from workers.train.engine import Batch, TrainEngine
from workers.train.group.engine import GroupEngine
from workers.train.group.member import Member
from workers.train.group.place import Place

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

SPECS = {
    "all": LoraSpec(rank=4, seed=1),
    "small": LoraSpec(rank=2, seed=2, train_unembed=False),
    "head": LoraSpec(rank=3, seed=3, train_attn=False, train_mlp=False),
}
PACK_TOKENS = 128  #: over both ranks
VOCABULARY = 97
#: Mild: a large step, or a token that crosses a clipping bound, makes of rounding something that can be seen.
ADAM = AdamParams(learning_rate=1e-3, eps=1e-6, weight_decay=0.1, grad_clip_norm=1.0)


@dataclass
class Pair:
    """Rank 0 of a group of two, and an engine alone on the same weights."""

    member: Member
    group: GroupEngine
    alone: TrainEngine
    other: subprocess.Popen[bytes]
    losses: list[str] = field(default_factory=list)  #: what ended the group

    def both(self) -> tuple[TrainEngine, TrainEngine]:
        return self.group, self.alone

    def agree(self, batches: Sequence[Batch]) -> None:
        """Runs the batches on both, and compares everything that a caller sees."""
        found, wanted = (engine.forward_backward(batches) for engine in self.both())
        for one, other in zip(found, wanted, strict=True):
            if not isinstance(other, BatchResult):
                assert str(one) == str(other)
                continue
            assert isinstance(one, BatchResult), one
            assert one.metrics == pytest.approx(other.metrics, rel=1e-5, abs=1e-4)
            for mine, theirs in zip(one.logprobs, other.logprobs, strict=True):
                assert mine.shape == theirs.shape
                torch.testing.assert_close(floats(mine), floats(theirs), rtol=1e-5, atol=1e-5)
        self.agree_on_runs()

    def agree_on_runs(self) -> None:
        for name in SPECS:
            mine, theirs = self.group.run(name), self.alone.run(name)
            assert mine.step == theirs.step
            for one, other in ((mine.grad, theirs.grad), (mine.weights, theirs.weights), (mine.m, theirs.m)):
                assert (one is None) is (other is None)
                if one is not None and other is not None:
                    assert float((one - other).abs().max()) <= 2e-5 * float(other.abs().max())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def open_pair(folder: Path) -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    env = os.environ | common | {"RANK": "1", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "test", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).parent / "follower.py"), str(folder), str(PACK_TOKENS)]
    with (folder / "follower.out").open("wb") as out:
        other = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=2)
        losses: list[str] = []
        place = Place(rank=0, world=2, local_rank=0, local_world=2, host="127.0.0.1")
        member = Member(place, torch.device("cpu"), 30.0, losses.append)
        base = member.load(str(folder), torch.float32)
        group = member.engine(base, name="tiny", pack_tokens=PACK_TOKENS)
        whole = load_base(folder, device=torch.device("cpu"), dtype=torch.float32)
        yield Pair(member, group, TrainEngine(whole, name="tiny", pack_tokens=PACK_TOKENS // 2), other, losses)
        if not losses:
            member.close(group)
            assert other.wait(20) == 0, (folder / "follower.out").read_text()
    finally:
        other.kill()
        other.wait()
        if dist.is_initialized():
            dist.destroy_process_group()


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[Pair]:
    yield from open_pair(folder)


@pytest.fixture
def pair(opened: Pair) -> Pair:
    """With the same fresh runs on both; none of them does nothing, so that gradients reach A too."""
    for name, spec in SPECS.items():
        opened.alone.create(name, spec)
        run = opened.alone.run(name)
        run.weights += torch.randn(run.shape.size, generator=torch.Generator().manual_seed(spec.rank)) * 0.05
        opened.group.load(name, opened.alone.checkpoint(name), with_optimizer=True)
    return opened


def floats(values: Array) -> Tensor:
    return torch.frombuffer(bytearray(values.data), dtype=torch.float32)


def mixed_batches(make: Any) -> list[Batch]:
    """Runs of different ranks and targets, several losses, one run twice, lengths that need padding."""
    return [
        make.batch("all", Loss.CROSS_ENTROPY, (9, 4)),
        make.batch("small", Loss.IMPORTANCE_SAMPLING, (12, 3, 7)),
        make.batch("head", Loss.DRO, (8,), loss_config={"beta": 0.2}),
        make.batch("all", Loss.CROSS_ENTROPY, (5, 30)),
    ]


def with_prompt(batch: Batch, prompt: Datum, length: int = 20) -> Batch:
    """All its datums begin as `prompt` does."""
    first = prompt.tokens.data[: 4 * length]
    return replace(
        batch,
        data=[
            replace(datum, tokens=replace(datum.tokens, data=first + datum.tokens.data[4 * length :]))
            for datum in batch.data
        ],
    )


def test_several_steps_of_several_tenants_equal_those_of_one_process(pair: Pair, make: Any) -> None:
    for _ in range(3):
        pair.agree(mixed_batches(make))
        for name in SPECS:
            mine, theirs = (engine.optim_step(name, ADAM) for engine in pair.both())
            assert mine == pytest.approx(theirs, rel=1e-4)
        pair.agree_on_runs()


def test_steps_in_one_go_equal_those_of_one_process(pair: Pair, make: Any) -> None:
    pair.agree(mixed_batches(make))
    asked = [(name, ADAM) for name in (*SPECS, "nobody")]
    mine, theirs = (engine.optim_steps(asked) for engine in pair.both())
    assert mine[:-1] == [pytest.approx(each, rel=1e-4) for each in theirs[:-1]]
    assert isinstance(mine[-1], RunNotFound)
    pair.agree_on_runs()


def test_prompts_that_datums_share(pair: Pair, make: Any) -> None:
    prompt = make.datum(Loss.PPO, 20)
    long = with_prompt(make.batch("all", Loss.PPO, (25, 28, 31, 25, 22, 24)), prompt)
    pair.agree([long, with_prompt(make.batch("small", Loss.PPO, (24, 24)), prompt)])


def test_one_datum_for_two_processes(pair: Pair, make: Any) -> None:
    pair.agree([make.batch("head", Loss.CROSS_ENTROPY, (9,))])
    pair.agree([make.batch("small", Loss.CROSS_ENTROPY, (9,), forward_only=True)])


def test_forward_only_beside_training(pair: Pair, make: Any) -> None:
    first, second, *rest = mixed_batches(make)
    pair.agree([replace(first, forward_only=True), second, *(replace(each, forward_only=True) for each in rest)])


def test_a_bad_batch_concerns_itself_only(pair: Pair, make: Any) -> None:
    batches = mixed_batches(make)
    batches[1] = replace(batches[1], loss_config={"beta": 1.0})
    batches[2] = replace(batches[2], run_id="nobody")
    pair.agree(batches)
    first, second = (type(each) for each in pair.group.forward_backward(batches)[1:3])
    assert (first, second) == (FieldInvalid, RunNotFound)


def test_a_datum_too_large_for_the_rank_with_least_memory_is_refused_on_all(
    pair: Pair, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = make.batch("all", Loss.CROSS_ENTROPY, (8,)), make.batch("small", Loss.CROSS_ENTROPY, (60,))
    memory = pair.group.memory
    portion = memory.portion((long, pair.group.run("small").shape))
    monkeypatch.setattr(memory, "budget", Budget(lambda: 0, fixed=portion.kept + portion.least - 1))
    first, second = pair.group.forward_backward([short, long])
    assert isinstance(first, BatchResult) and isinstance(second, DatumTooLarge)
    assert not pair.losses


def test_a_gradient_that_is_not_finite_on_one_rank_is_refused_on_both(pair: Pair, make: Any) -> None:
    batches = mixed_batches(make)
    poisoned = batches[1].data[0]
    endless = replace(poisoned.inputs["advantages"], data=b"\0\0\x80\x7f" * poisoned.length)
    data = [replace(poisoned, inputs=poisoned.inputs | {"advantages": endless}), *batches[1].data[1:]]
    batches[1] = replace(batches[1], data=data)
    for found, wanted in zip(*(engine.forward_backward(batches) for engine in pair.both()), strict=True):
        assert type(found) is type(wanted)
    assert isinstance(pair.group.forward_backward(batches[1:2])[0], GradientNotFinite)
    pair.alone.forward_backward(batches[1:2])
    pair.agree_on_runs()
    pair.group.run("all").grad = pair.alone.run("all").grad = None
    assert pair.group.optim_step("small", ADAM)["applied"] == 0.0
    pair.alone.optim_step("small", ADAM)
    pair.agree_on_runs()


def test_what_is_saved_can_be_loaded_and_gone_on_with(pair: Pair, make: Any) -> None:
    pair.agree(mixed_batches(make))
    for engine in pair.both():
        engine.optim_step("all", ADAM)
        engine.load("small", engine.checkpoint("all"), with_optimizer=True)
        engine.put("head", engine.restored({name: bytes(data) for name, data in engine.snapshot("head").items()}))
    pair.agree(mixed_batches(make))
    assert pair.group.policy("small").keys() == pair.alone.policy("small").keys()


def test_files_that_do_not_fit_are_refused_and_nothing_else_happens(pair: Pair, make: Any) -> None:
    with pytest.raises(AdapterUnsupported):
        pair.group.load("all", {"adapter_config.json": b"{}"}, with_optimizer=False)
    with pytest.raises(RunNotFound):
        pair.group.optim_step("nobody", ADAM)
    pair.agree(mixed_batches(make))


def test_a_run_without_a_seed_is_the_same_everywhere(pair: Pair, make: Any) -> None:
    pair.group.create("small", LoraSpec(rank=2))
    pair.group.drop("head")
    assert not pair.group.has("head")
    pair.group.create("head", SPECS["head"])
    for name in ("small", "head"):
        pair.alone.load(name, pair.group.checkpoint(name), with_optimizer=True)
    for _ in range(2):  # the first weights that a gradient depends on are the random ones
        pair.agree([make.batch("small", Loss.CROSS_ENTROPY, (9, 8, 9, 8))])
        for engine in pair.both():
            engine.optim_step("small", ADAM)


def test_each_rank_keeps_its_part_of_the_layers(pair: Pair) -> None:
    decoder: Any = pair.group.base.module.get_decoder()
    for layer in decoder.layers:
        parameters = list(layer.parameters())
        assert all(isinstance(each, DTensor) for each in parameters)
        here = sum(each.to_local().numel() for each in parameters)
        assert here == sum(each.numel() for each in parameters) / 2


def test_a_rank_killed_in_the_middle_of_a_pass_ends_the_others_at_once(make: Any, opened: Pair) -> None:
    opened.group.create("all", SPECS["all"])
    assert not opened.losses
    batches = [make.batch("all", Loss.CROSS_ENTROPY, (9, 9, 9, 9))]
    opened.other.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(opened.group.forward_backward, batches)
        time.sleep(0.5)
        assert not under_way.done() and not opened.losses, "a rank that sleeps is waited for"
        killed = time.monotonic()
        opened.other.kill()
        with pytest.raises(RuntimeError):
            under_way.result(10)
    while len(opened.losses) < 2:  # the device's thread and the pulse both say so
        assert time.monotonic() - killed < 5.0
        time.sleep(0.01)
    assert {"a rank is gone", "RuntimeError on rank 0"} == {loss.partition(" (")[0] for loss in opened.losses}
