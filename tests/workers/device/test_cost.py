import random
from collections.abc import Callable
from math import isfinite

import pytest

from workers.device.cost import GAIN, LEAST, TRY_EVERY, Cost

FULL = 16_384
Seconds = Callable[[int, int], float]


def machine(fixed: float, per_token: float, per_batch: float = 0.0, noise: float = 0.0) -> Seconds:
    """What packs take, in seconds by tokens and batches."""
    dice = random.Random(3)
    return lambda tokens, batches: (
        (fixed + per_token * tokens + per_batch * batches) * (1 + dice.uniform(-noise, noise))
    )


def crowd(cost: Cost, seconds: Seconds, batch_tokens: int, packs: int, waiting: int = 64) -> list[int]:
    """Many batches of one size always wait: how many each pack takes."""
    sizes = []
    for _ in range(packs):
        batches = 1
        while (
            batches < waiting
            and (batches + 1) * batch_tokens <= FULL
            and not cost.enough(batches * batch_tokens, batches)
        ):
            batches += 1
        cost.learn(batches * batch_tokens, batches, seconds(batches * batch_tokens, batches))
        sizes.append(batches)
    return sizes


def usual(sizes: list[int]) -> int:
    """The size of packs that try nothing."""
    return sorted(sizes)[len(sizes) // 2]


def test_before_anything_is_measured_packs_are_filled_but_for_a_few_that_run_alone() -> None:
    sizes = crowd(Cost(FULL), machine(0.0, 1e-4), 64, LEAST)
    assert set(sizes) == {1, 64} and sizes.count(1) == sum(n % TRY_EVERY == TRY_EVERY // 2 for n in range(LEAST)) > 0


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_small_batches_are_packed_where_a_pack_has_a_fixed_cost(noise: float) -> None:
    assert usual(crowd(Cost(FULL), machine(0.05, 1e-5, noise=noise), 16, 150)[-40:]) == 64


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_batches_large_enough_to_carry_the_fixed_cost_run_alone(noise: float) -> None:
    assert usual(crowd(Cost(FULL), machine(0.002, 1e-4, noise=noise), 1000, 150)[-40:]) == 1


def test_a_pack_is_as_large_as_throughput_needs_but_for_the_last_part() -> None:
    fixed, per_token, per_batch = 0.01, 2e-5, 1e-3
    sizes = crowd(Cost(FULL), machine(fixed, per_token, per_batch), 100, 200)[-40:]
    needed = fixed / (GAIN * (100 * per_token + per_batch))
    assert usual(sizes) == pytest.approx(needed, rel=0.1)


def test_one_size_does_not_blind_it_and_old_packs_are_forgotten() -> None:
    cost = Cost(FULL)
    assert usual(crowd(cost, machine(0.002, 1e-4), 1000, 150)[-40:]) == 1
    assert usual(crowd(cost, machine(0.45, 1e-4), 1000, 210)[-40:]) == 16, "the machine has changed"
    assert usual(crowd(cost, machine(0.002, 1e-4), 1000, 300)[-40:]) == 1, "and back"


def test_packs_that_get_slower_by_the_token_as_they_grow_are_not_made() -> None:
    """A cache that is left, say: the line then has a fixed part below zero."""
    assert usual(crowd(Cost(FULL), lambda tokens, batches: 1e-4 * tokens**1.2, 1000, 150)[-40:]) == 1


def test_one_pack_that_was_held_up_changes_little() -> None:
    cost, seconds = Cost(FULL), machine(0.002, 1e-4)
    crowd(cost, seconds, 1000, 150)
    cost.learn(1000, 1, 30.0)
    assert usual(crowd(cost, seconds, 1000, 40)) == 1


def test_a_pack_that_took_no_time_teaches_nothing() -> None:
    cost = Cost(FULL)
    cost.learn(10, 1, 0.0)
    assert cost.packs == 0 and cost.line == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("seconds", [1e-9, 1e-6, 1e3])
def test_packs_of_any_duration_can_be_learned_for_ever(seconds: float) -> None:
    cost = Cost(FULL)
    for number in range(2000):
        cost.learn(number % 7, 1 + number % 3, seconds)
        assert isinstance(cost.enough(10, 1), bool)
    assert all(isfinite(part) for part in cost.line)
