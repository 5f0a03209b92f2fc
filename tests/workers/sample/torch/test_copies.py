"""Whole models are sampled as what they are, beside the base model and never in its place."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import CopyWontFit, EngineBusy, FieldInvalid, WeightsNotArrived, WeightsUnsupported
from openrl.domain.ids import DepotKey, TenantId
from openrl.domain.outcome import BatchResult
from openrl.domain.run import AdamParams
from openrl.domain.tensor import DType, Tensor
from workers.device.loop import DeviceLoop
from workers.model.base import BaseModel
from workers.model.model_files import parameters, put, to_files
from workers.sample.torch.copies import Copies
from workers.sample.torch.engine import SampleEngine
from workers.train.engine import Batch, TrainEngine
from workers.train.seat import Seat

ONE, TWO, THREE = (DepotKey(f"policies/full-{number}") for number in (1, 2, 3))


class Depot:
    """Versions of a model by key."""

    def __init__(self, base: BaseModel) -> None:
        self.files: dict[DepotKey, Mapping[str, bytes]] = {}
        self.fetched: list[DepotKey] = []
        for key in (ONE, TWO, THREE):
            self.files[key] = to_files(base, version(base, key), torch.float32)

    def fetch(self, key: DepotKey) -> Mapping[str, bytes]:
        self.fetched.append(key)
        return self.files[key]


def version(base: BaseModel, key: DepotKey) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(int(key[-1]))
    return {
        name: each.detach() + 0.1 * torch.randn(each.shape, generator=generator)
        for name, each in parameters(base).items()
    }


@pytest.fixture
def base(lab: Any) -> BaseModel:
    return lab.base()


@pytest.fixture
def depot(base: BaseModel) -> Depot:
    return Depot(base)


@pytest.fixture
def make_copies(lab: Any, base: BaseModel, depot: Depot) -> Iterator[Callable[..., Copies]]:
    made: list[Copies] = []

    def make(limit: int = 2, free: int = 10**9) -> Copies:
        def engine_on(model: BaseModel) -> SampleEngine:
            return lab.engine(model, fetch=depot.fetch)

        made.append(Copies(base, engine_on, fetch=depot.fetch, limit=limit, free_bytes=lambda: free))
        return made[-1]

    yield make
    for copies in made:
        copies.close()


def alone(lab: Any, base: BaseModel, key: DepotKey, prompt: list[int]) -> Any:
    """What an engine on a model with just these weights answers."""
    model = deepcopy(base)
    put(model, version(base, key))
    return lab.run(lab.engine(model), lab.ask(prompt, temperature=0.0, prompt_logprobs=True))[0]


def test_a_version_is_sampled_from_its_own_weights_beside_the_base_model_and_adapters(
    lab: Any, base: BaseModel, make_copies: Callable[..., Copies]
) -> None:
    copies = make_copies()
    copies.engine.put(DepotKey("policies/a"), *lab.adapter(base, 5))
    prompts = {None: [3, 4], DepotKey("policies/a"): [5, 6, 7], ONE: [8, 9], TWO: [8, 9]}
    asked = [lab.ask(each, temperature=0.0, prompt_logprobs=True, policy=key) for key, each in prompts.items()]
    plain, adapted, one, two = lab.run(copies, *asked)
    engine = lab.engine(base)
    engine.put(DepotKey("policies/a"), *lab.adapter(base, 5))
    for found, wanted in zip((plain, adapted), lab.run(engine, *asked[:2]), strict=True):
        assert lab.tokens(found.sequences[0]) == lab.tokens(wanted.sequences[0])
    for found, key in ((one, ONE), (two, TWO)):
        wanted = alone(lab, base, key, [8, 9])
        assert lab.tokens(found.sequences[0]) == lab.tokens(wanted.sequences[0])
        assert lab.array(found.sequences[0].logprobs) == pytest.approx(
            lab.array(wanted.sequences[0].logprobs), abs=1e-5
        )
        assert lab.array(found.prompt_logprobs)[1:] == pytest.approx(lab.array(wanted.prompt_logprobs)[1:], abs=1e-5)
    assert lab.tokens(one.sequences[0]) != lab.tokens(two.sequences[0])


def test_a_version_is_read_once_and_the_one_unused_for_longest_gives_way(
    lab: Any, base: BaseModel, depot: Depot, make_copies: Callable[..., Copies]
) -> None:
    copies = make_copies(limit=2)
    for key in (ONE, TWO, ONE, THREE, ONE, TWO):
        (found,) = lab.run(copies, lab.ask([8, 9], temperature=0.0, policy=key))
        assert lab.tokens(found.sequences[0]) == lab.tokens(alone(lab, base, key, [8, 9]).sequences[0])
    assert depot.fetched == [ONE, TWO, THREE, TWO]
    assert len(copies._copies) == 2


def test_a_version_that_is_asked_for_all_the_time_does_not_keep_another_away(
    lab: Any, make_copies: Callable[..., Copies]
) -> None:
    copies = make_copies(limit=1)
    busy = [copies.submit(lab.ask([1, 2], 8, policy=ONE))]
    copies.step()
    other = copies.submit(lab.ask([3], 2, policy=TWO))
    for _ in range(400):
        busy.append(copies.submit(lab.ask([1, 2], 8, policy=ONE)))
        copies.step()
        if other.done():
            break
    assert other.done()
    lab.finish(copies, other, *busy)


def test_who_gave_up_while_weights_were_on_their_way_keeps_nobody_waiting(
    lab: Any, make_copies: Callable[..., Copies]
) -> None:
    copies = make_copies(limit=1)
    first = copies.submit(lab.ask([1, 2], policy=ONE))
    copies.step()
    copies.cancel(first)
    lab.finish(copies, copies.submit(lab.ask([1, 2], policy=TWO)))
    under_way = copies.submit(lab.ask([1, 2], 200, policy=TWO))
    copies.step()
    copies.cancel(under_way)
    copies.step()
    assert copies.idle


def test_what_cannot_be_loaded_fails_its_request_only_and_is_tried_again(
    lab: Any, depot: Depot, make_copies: Callable[..., Copies]
) -> None:
    copies = make_copies()
    good, missing = depot.files[ONE], DepotKey("policies/full-9")
    depot.files[ONE] = {"model.safetensors": b"no"}
    wrong, absent, fine = (copies.submit(lab.ask([1], policy=key)) for key in (ONE, missing, TWO))
    while not copies.idle:
        copies.step()
    assert isinstance(wrong.exception(), WeightsUnsupported) and isinstance(absent.exception(), WeightsNotArrived)
    assert fine.result()
    depot.files[ONE] = good
    lab.run(copies, lab.ask([1], policy=ONE))


def test_a_copy_that_was_written_over_in_part_is_never_sampled(
    lab: Any, base: BaseModel, depot: Depot, make_copies: Callable[..., Copies], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = make_copies(limit=1)
    lab.run(copies, lab.ask([8, 9], policy=ONE))

    def put_some(model: BaseModel, weights: Mapping[str, torch.Tensor]) -> None:
        name, parameter = next(iter(parameters(model).items()))
        with torch.no_grad():
            parameter.copy_(weights[name])
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr("workers.sample.torch.copies.put", put_some)
        broken = copies.submit(lab.ask([8, 9], policy=TWO))
        while not copies.idle:
            copies.step()
    assert isinstance(broken.exception(), torch.OutOfMemoryError)
    (found,) = lab.run(copies, lab.ask([8, 9], temperature=0.0, prompt_logprobs=True, policy=ONE))
    wanted = alone(lab, base, ONE, [8, 9])
    assert lab.array(found.prompt_logprobs)[1:] == pytest.approx(lab.array(wanted.prompt_logprobs)[1:], abs=1e-5)
    assert depot.fetched == [ONE, TWO, ONE]


def test_without_memory_for_a_copy_the_request_fails_and_the_base_model_goes_on(
    lab: Any, make_copies: Callable[..., Copies]
) -> None:
    copies = make_copies(free=1000)
    whole, plain = copies.submit(lab.ask([1], policy=ONE)), copies.submit(lab.ask([1]))
    while not copies.idle:
        copies.step()
    assert plain.result()
    with pytest.raises(CopyWontFit, match="model of its own"):
        whole.result()


def test_a_request_that_cannot_be_served_says_why(lab: Any, make_copies: Callable[..., Copies]) -> None:
    copies = make_copies()
    wrong = copies.submit(lab.ask([1000], policy=ONE))
    while not copies.idle:
        copies.step()
    with pytest.raises(FieldInvalid, match="prompt"):
        wrong.result()


def test_closing_fails_what_is_unfinished(lab: Any, make_copies: Callable[..., Copies]) -> None:
    copies = make_copies()
    waiting = copies.submit(lab.ask([1], policy=ONE))
    copies.close()
    with pytest.raises(EngineBusy):
        waiting.result(0)


def test_sampled_logprobs_equal_those_of_training(lab: Any, make_copies: Callable[..., Copies], depot: Depot) -> None:
    model = deepcopy(lab.base())
    trainer = TrainEngine(model, seat=Seat(model, lambda: 10**9))
    trainer.create("whole", None)
    tokens = torch.tensor([8, 9, 10, 11])
    batch = Batch(run_id="whole", data=[_datum(tokens[:-1], tokens[1:])], loss=Loss.CROSS_ENTROPY)
    for _ in range(3):
        trainer.forward_backward([batch])
        trainer.optim_step("whole", AdamParams(learning_rate=1e-2))
    depot.files[ONE] = trainer.policy("whole")
    copies = make_copies()
    (found,) = lab.run(copies, lab.ask(tokens.tolist(), 6, policy=ONE, seed=1, prompt_logprobs=True))
    whole = torch.tensor([*tokens.tolist(), *lab.tokens(found.sequences[0])])
    again = Batch(run_id="whole", data=[_datum(whole[:-1], whole[1:])], loss=Loss.CROSS_ENTROPY, forward_only=True)
    (result,) = trainer.forward_backward([again])
    assert isinstance(result, BatchResult)
    wanted = lab.array(result.logprobs[0])
    assert lab.array(found.prompt_logprobs)[1:] == pytest.approx(wanted[:3], abs=1e-4)
    assert lab.array(found.sequences[0].logprobs) == pytest.approx(wanted[3:], abs=1e-4)


def test_versions_are_sampled_on_a_thread_of_their_own_while_the_run_trains(lab: Any) -> None:
    """In bfloat16, with the base model's weights laid out for decoding where the processor gains by it."""
    config = deepcopy(lab.base().module.config)
    torch.manual_seed(1)
    model = BaseModel(LlamaForCausalLM(config).to(torch.bfloat16), "tiny")
    sampled = model.twin()
    sampled.pack(10**9)
    batch = Batch(run_id="whole", data=[_datum(torch.arange(8, 40), torch.arange(9, 41))] * 4, loss=Loss.CROSS_ENTROPY)

    def train(loop: DeviceLoop[Batch], trainer: TrainEngine) -> torch.Tensor:
        loop.call(lambda: trainer.create("whole", None))
        for _ in range(6):
            loop.forward_backward(batch, TenantId("t"))
            loop.optim_step("whole", AdamParams(learning_rate=1e-2), TenantId("t"))
        run = trainer.seat and trainer.seat.run("whole")
        assert run is not None
        return run.weights.clone()

    trained, versions = [], {key: to_files(model, version(model, key), torch.bfloat16) for key in (ONE, TWO)}
    for keys in ((), (ONE, TWO, ONE, TWO)):
        trainer = TrainEngine(model, seat=Seat(model, lambda: 10**9))
        copies = Copies(
            sampled,
            lambda on: lab.engine(on, fetch=None),
            fetch=versions.__getitem__,
            limit=1,
            free_bytes=lambda: 10**9,
        )
        loop: DeviceLoop[Batch] = DeviceLoop(trainer, copies, apart=True)
        loop.start()
        with ThreadPoolExecutor(1) as aside:
            coming = aside.submit(train, loop, trainer)
            found = []
            for key in keys:
                asked = copies.submit(lab.ask([8, 9], 6, temperature=0.0, policy=key))
                loop.wake()
                found.append(lab.tokens(asked.result(30).sequences[0]))
            trained.append(coming.result(30))
        loop.stop()
        copies.close()
    assert torch.equal(*trained)
    assert found == [lab.tokens(alone(lab, model, key, [8, 9]).sequences[0])[:6] for key in keys]


def _datum(tokens: torch.Tensor, targets: torch.Tensor) -> Datum:
    def array(values: torch.Tensor, dtype: DType) -> Tensor:
        return Tensor(dtype=dtype, shape=tuple(values.shape), data=values.contiguous().numpy().tobytes())

    inputs = {
        "target_tokens": array(targets, DType.INT64),
        "weights": array(torch.ones(len(targets)), DType.FLOAT32),
    }
    return Datum(tokens=array(tokens.int(), DType.INT32), inputs=inputs)


def test_a_copy_that_is_written_over_forgets_what_it_computed_with_the_old_weights(
    lab: Any, base: BaseModel, make_copies: Callable[..., Copies]
) -> None:
    copies, prompt = make_copies(limit=1), list(range(5, 60))
    for key in (ONE, TWO):
        (found,) = lab.run(copies, lab.ask(prompt, temperature=0.0, policy=key))
        wanted = alone(lab, base, key, prompt)
        assert lab.tokens(found.sequences[0]) == lab.tokens(wanted.sequences[0])
        expected = lab.array(wanted.sequences[0].logprobs)
        assert lab.array(found.sequences[0].logprobs) == pytest.approx(expected, abs=1e-5)


def test_a_step_tells_whom_it_served_on_any_copy(lab: Any, make_copies: Callable[..., Copies]) -> None:
    copies = make_copies()
    futures = [copies.submit(lab.ask([3, 4], 30, policy=key, sampler=str(key))) for key in (None, ONE)]
    served: list[set[str]] = []
    while not copies.idle:
        copies.step()
        served.append({owner.name for owner in copies.served})
    assert lab.finish(copies, *futures)
    assert set().union(*served) == {"None", str(ONE)}
    copies.step()
    assert not copies.served
