from dataclasses import replace

import fairness
import pytest
from fairness import Times
from flood import Steps
from simulated import SimulatedEngine

from openrl.domain.sampling import SamplingParams
from workers.sample.request import SampleRequest

IDLE = Times(all=100.0, created=5.0, sample_line=10.0, sampled=50.0, reward_line=10.0, scored=10.0)


def request(tenant: str = "anna", *, samples: int = 1, tokens: int = 2) -> SampleRequest:
    params = SamplingParams(max_tokens=tokens)
    return SampleRequest(prompt=(5, 6, 7), params=params, num_samples=samples, tenant=tenant)


def test_the_ratio_is_what_is_left_without_a_round_by_the_idle_time() -> None:
    loaded = replace(IDLE, all=300.0, sample_line=60.0)
    found = fairness.figures([IDLE] * 20, [loaded] * 20, Steps(10.0, 100, 0), Steps(20.0, 600, 30_000), 8)
    assert found["round_ms"] == pytest.approx(10.0 / 500 * 8 * 1e3)
    assert found["neighbour_ratio"] == pytest.approx((300.0 - found["round_ms"]) / 100.0)
    assert found["rows_per_step"] == 60.0 and found["flood_rollouts_per_s"] == 375.0
    assert (found["idle_around_p95_ms"], found["loaded_sample_line_p50_ms"]) == (20.0, 60.0)


def test_the_simulated_engine_draws_a_token_for_every_row_in_a_step() -> None:
    engine = SimulatedEngine(0.0, max_rows=4)
    first, second = engine.submit(request(samples=2)), engine.submit(request(tokens=3))
    assert engine.step() and not first.done()
    assert engine.step() and first.done() and not second.done()
    assert not engine.step() and engine.idle and engine.tokens_drawn == 2 * 2 + 3
    (one, two) = first.result().sequences
    assert one == two and one.tokens.shape == (2,)


def test_the_simulated_engine_lets_tenants_in_by_turns_while_there_are_rows() -> None:
    engine = SimulatedEngine(0.0, max_rows=64)
    flood = [engine.submit(request(tokens=64)) for _ in range(200)]
    engine.step()
    single = engine.submit(request("bert", tokens=64))
    for _ in range(64 + 62):
        engine.step()
    assert not single.done()
    engine.step()
    assert single.done() and sum(future.done() for future in flood) == 64 + 63


def test_what_is_cancelled_is_drawn_no_further() -> None:
    engine = SimulatedEngine(0.0, max_rows=1)
    running, waiting = engine.submit(request(tokens=9)), engine.submit(request(tokens=9))
    engine.step()
    engine.cancel(running)
    engine.cancel(waiting)
    assert not engine.step() and engine.idle
