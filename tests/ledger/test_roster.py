import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from openrl.domain.ids import WorkerId
from openrl.domain.model import ModelCard
from openrl.domain.worker import DeviceUse, Role, SideUse, WorkerInfo
from openrl.ledger.roster import MemoryRoster, RedisRoster


def card(name: str, **other: object) -> ModelCard:
    return ModelCard(name=name, tokenizer_id=name, architecture="llama", vocab_size=49152, context_length=2048, **other)


ONE = WorkerInfo(
    id=WorkerId("w1"),
    role=Role.DEVICE,
    host="laptop",
    pid=7,
    cards=(card("smollm2", aliases=("HuggingFaceTB/SmolLM2-135M",)),),
    slots=64,
    started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
)
TWO = replace(ONE, id=WorkerId("w2"), role=Role.REWARD, cards=())


class Clock:
    ahead = 0.0

    def offset(self) -> float:
        return self.ahead

    def time(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "redis"])
def roster(request, clock):
    if request.param == "memory":
        return MemoryRoster(clock.time)
    return RedisRoster(request.getfixturevalue("client"), clock_offset=clock.offset)


def test_announced_workers_and_their_models_are_listed(roster):
    assert (roster.workers(), roster.cards()) == ([], [])
    roster.announce(TWO, 10)
    roster.announce(ONE, 10)
    assert roster.workers() == [ONE, TWO]
    assert roster.cards() == list(ONE.cards)


def test_the_latest_announcement_counts(roster):
    use = DeviceUse(seconds=3.0, train=SideUse(seconds=1.5, passes=2, tokens=7))
    roster.announce(ONE, 10)
    roster.announce(replace(ONE, use=use), 10)
    assert roster.workers() == [replace(ONE, use=use)]


def test_a_worker_that_falls_silent_is_gone_but_its_model_stays(roster, clock):
    roster.announce(ONE, 10)
    clock.ahead += 9
    roster.announce(ONE, 10)
    clock.ahead += 9
    assert roster.workers() == [ONE]
    clock.ahead += 2
    assert roster.workers() == []
    assert roster.cards() == list(ONE.cards)


def test_a_worker_that_leaves_is_gone_at_once_but_its_model_stays(roster):
    roster.announce(ONE, 10)
    roster.leave(ONE.id)
    roster.leave(ONE.id)
    assert roster.workers() == []
    assert roster.cards() == list(ONE.cards)


def test_a_model_is_forgotten_a_day_after_its_last_announcement(roster, clock):
    roster.announce(ONE, 10)
    clock.ahead += 23 * 3600
    roster.announce(ONE, 10)
    clock.ahead += 23 * 3600
    assert roster.cards() == list(ONE.cards)
    clock.ahead += 2 * 3600
    assert roster.cards() == []


def test_a_withdrawn_model_is_served_again_when_a_worker_announces_it(roster):
    roster.announce(ONE, 10)
    roster.withdraw("smollm2")
    assert roster.cards() == []
    roster.announce(ONE, 10)
    assert roster.cards() == list(ONE.cards)


def test_two_workers_of_one_model_make_one_card_and_the_newer_counts(roster):
    roster.announce(replace(ONE, cards=(card("b"), card("a"))), 10)
    roster.announce(replace(TWO, cards=(card("b", max_lora_rank=8),)), 10)
    assert [(c.name, c.max_lora_rank) for c in roster.cards()] == [("a", 256), ("b", 8)]


def test_what_is_over_leaves_nothing_in_redis(client, clock):
    roster = RedisRoster(client, clock_offset=clock.offset)
    roster.announce(ONE, 10)
    clock.ahead += 25 * 3600
    roster.announce(TWO, 10)
    assert client.hkeys("openrl:workers") == [b"w2"]
    assert not client.exists("openrl:cards", "openrl:cards_until")


def test_a_train_and_a_sample_worker_make_one_model_that_can_do_both(roster):
    trains = replace(ONE, id=WorkerId("t"), role=Role.TRAIN, cards=(card("smollm2", sampleable=False, full_runs=True),))
    samples = replace(ONE, id=WorkerId("s"), role=Role.SAMPLE, cards=(card("smollm2", trainable=False),))
    roster.announce(trains, 10)
    assert [(it.trainable, it.sampleable, it.full_runs) for it in roster.cards()] == [(True, False, True)]
    roster.announce(samples, 10)
    assert [(it.trainable, it.sampleable, it.full_runs) for it in roster.cards()] == [(True, True, True)]
    roster.withdraw("smollm2")
    assert roster.cards() == []
