import threading

import pytest
import torch

from openrl.domain.errors import AdapterUnsupported, WeightsNotArrived
from workers.model.adapter_files import to_files
from workers.sample.torch.adapters import Adapters

PROMPT = list(range(20, 33))


class Shelf:
    """Adapter files by key; counts what is fetched."""

    def __init__(self, lab, base, count):
        self.files = {f"p{number}": to_files(*lab.adapter(base, number), "tiny") for number in range(count)}
        self.fetched = []

    def __call__(self, key):
        self.fetched.append(key)
        return self.files[key]


@pytest.fixture
def shelf(lab):
    return Shelf(lab, lab.base(), 4)


@pytest.fixture
def adapters(lab, shelf):
    made = Adapters(lab.base(), fetch=shelf, limit=2)
    yield made
    made.close()


def arrived(adapters, key):
    assert adapters.hold(key)
    adapters.wait_for_any(5)
    assert adapters.ready(key)
    adapters.release(key)


def test_the_least_recently_used_policy_makes_way(adapters, shelf):
    for key in ("p0", "p1", "p0", "p2", "p0", "p1"):
        arrived(adapters, key)
    assert shelf.fetched == ["p0", "p1", "p2", "p1"]


def test_a_held_policy_is_never_dropped(adapters):
    assert adapters.hold("p0")
    assert adapters.hold("p1")
    assert not adapters.hold("p2")
    assert adapters.hold("p0")
    adapters.release("p1")
    assert adapters.hold("p2")
    assert "p0" in adapters
    assert "p1" not in adapters


def test_a_policy_handed_over_is_not_fetched(lab, adapters, shelf):
    adapters.put("p0", *lab.adapter(lab.base(), 0))
    arrived(adapters, "p0")
    assert shelf.fetched == []


@pytest.mark.parametrize("rank", [3, 4])
def test_a_policy_handed_over_is_its_files_to_the_bit(lab, adapters, shelf, rank):
    base = lab.base()
    shape, flat = lab.adapter(base, 0, rank, part="self_attn")
    flat[:8] = torch.tensor([0.0, -0.0, 1e-41, -1e-41, 3e38, 1 / 3, 1e-8, -1.0])
    shelf.files["p1"] = to_files(shape, flat, "tiny")
    adapters.put("p0", shape, flat)
    arrived(adapters, "p1")
    (mine, handed), (theirs, read) = (adapters._weights(key) for key in ("p0", "p1"))
    assert mine == theirs
    assert handed.dtype == read.dtype
    assert torch.equal(handed.view(torch.int32), read.view(torch.int32))
    flat.zero_()
    assert handed.count_nonzero(), "the run trains on in its own memory"


def test_handing_over_when_all_places_are_held_changes_nothing(lab, adapters):
    adapters.hold("p0")
    adapters.hold("p1")
    adapters.put("p2", *lab.adapter(lab.base(), 2))
    assert "p2" not in adapters


def test_weights_that_are_not_finite_are_refused(lab, adapters):
    shape, flat = lab.adapter(lab.base(), 0)
    with pytest.raises(AdapterUnsupported, match="not finite"):
        adapters.put("p0", shape, flat * float("nan"))


def test_a_policy_that_could_not_be_loaded_is_tried_again(adapters, shelf):
    files = shelf.files.pop("p0")
    adapters.hold("p0")
    adapters.wait_for_any(5)
    with pytest.raises(WeightsNotArrived):
        adapters.ready("p0")
    adapters.release("p0")
    shelf.files["p0"] = files
    arrived(adapters, "p0")


def test_a_policy_gives_the_same_after_it_was_dropped_and_read_again(lab, shelf):
    engine = lab.engine(fetch=shelf, adapters=1)
    wanted = lab.ask(PROMPT, 10, policy="p0", seed=1)
    before, _, after = (lab.run(engine, request)[0] for request in (wanted, lab.ask(PROMPT, policy="p1"), wanted))
    assert shelf.fetched == ["p0", "p1", "p0"]
    assert before == after


def test_more_policies_than_places_take_turns(lab, shelf):
    engine = lab.engine(fetch=shelf, adapters=2)
    requests = [lab.ask(PROMPT, 6, policy=f"p{number % 4}", temperature=0.0) for number in range(8)]
    results = [lab.tokens(result.sequences[0]) for result in lab.run(engine, *requests)]
    assert results[:4] == results[4:]
    assert len({tuple(result) for result in results[:4]}) == 4


def test_a_policy_on_its_way_does_not_keep_others_waiting(lab):
    base = lab.base()
    shelf, gate = Shelf(lab, base, 2), threading.Event()

    def fetch(key):
        if key == "p0":
            gate.wait(10)
        return shelf(key)

    adapters = Adapters(base, fetch=fetch, limit=2)
    assert adapters.hold("p0")
    arrived(adapters, "p1")
    assert not adapters.ready("p0")
    gate.set()
    adapters.close()


def test_a_slow_policy_does_not_hold_up_other_requests(lab, shelf):
    gate = threading.Event()

    def slow(key):
        assert gate.wait(5)
        return shelf(key)

    engine = lab.engine(fetch=slow)
    late, soon = engine.submit(lab.ask(PROMPT, policy="p0")), engine.submit(lab.ask(PROMPT))
    while not soon.done():
        engine.step()
    assert not late.done()
    gate.set()
    assert len(lab.finish(engine, late)[0].sequences) == 1
