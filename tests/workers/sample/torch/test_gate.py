"""Who is let in, and when."""

from collections import Counter

import pytest

from workers.sample.torch.gate import PATIENCE

PROMPT = list(range(20, 33))


def tenants(engine) -> Counter[str]:
    return Counter(row.job.request.tenant for row in engine._table.rows)


def step_until(engine, wanted, most=2000) -> int:
    """Steps until `wanted` answers true."""
    for step in range(most):
        if wanted():
            return step
        engine.step()
    raise AssertionError("never")


def flood(lab, engine, count=300, **fields):
    return [engine.submit(lab.ask(PROMPT, 9, seed=n, tenant="flood", **fields)) for n in range(count)]


def test_thousands_of_one_tenants_samples_delay_anothers_request_by_one_group_at_most(lab):
    engine = lab.engine(max_rows=4)
    flood(lab, engine, 3000)
    step_until(engine, lambda: engine.tokens_drawn > 100)
    seen = engine.waiting
    future = engine.submit(lab.ask(PROMPT[:5], 40, tenant="other"))
    step_until(engine, lambda: engine.waiting <= seen - 1)
    assert tenants(engine)["other"] == 1
    assert not future.done()


def test_so_do_the_samples_of_one_request_and_tokens_are_shared_evenly(lab):
    engine = lab.engine(max_rows=4)
    engine.submit(lab.ask(PROMPT, 9, num_samples=10_000, tenant="flood"))
    step_until(engine, lambda: engine.tokens_drawn > 100)
    engine.submit(lab.ask(PROMPT[:5], 40, num_samples=10_000, tenant="other"))
    step_until(engine, lambda: tenants(engine)["other"])
    jobs = {row.job.request.tenant: row.job for row in engine._table.rows}
    before = jobs["flood"].admitted
    for _ in range(300):
        engine.step()
    assert 0.8 < (jobs["flood"].admitted - before) * 9 / (jobs["other"].admitted * 40) < 1.25


def test_two_requests_that_come_together_share_the_rows(lab):
    engine = lab.engine(max_rows=8)
    for tenant in "ab":
        engine.submit(lab.ask(PROMPT, 200, num_samples=100, tenant=tenant))
    engine.step()
    assert tenants(engine) == {"a": 4, "b": 4}


def test_a_samplers_flood_leaves_the_tenants_other_samplers_free(lab):
    engine = lab.engine(max_rows=4)
    flood(lab, engine, sampler="flood")
    step_until(engine, lambda: engine.tokens_drawn > 100)
    future = engine.submit(lab.ask(PROMPT[:5], 9, tenant="flood", sampler="other"))
    before = engine.waiting
    step_until(engine, future.done)
    assert engine.waiting > before - 20


class Stream:
    """Small requests that never end, and never end together."""

    def __init__(self, lab, engine, **fields):
        self.lab, self.engine, self.fields = lab, engine, fields
        self.futures = []

    def step(self) -> None:
        while self.engine.waiting < 30:
            length = 3 + 5 * len(self.futures) % 17
            self.futures.append(self.engine.submit(self.lab.ask(PROMPT, length, **self.fields)))
        self.engine.step()


@pytest.mark.parametrize("rows", [4, 8])
@pytest.mark.parametrize("owner", [{"tenant": "big"}, {"tenant": "small", "sampler": "big"}])
def test_a_request_that_needs_much_room_lets_small_ones_past_for_so_many_rounds_only(lab, owner, rows):
    engine = lab.engine(max_rows=rows, cache_tokens=240)
    stream = Stream(lab, engine, tenant="small")
    for _ in range(30):
        stream.step()
    big = engine.submit(lab.ask(PROMPT, 200, **owner))
    before = len(stream.futures) - engine.waiting
    for _ in range(6 * PATIENCE):
        stream.step()
    assert [len(row.job.request.prompt) + row.job.request.params.max_tokens for row in engine._table.rows] == [213]
    assert PATIENCE <= len(stream.futures) - engine.waiting - before <= 8 * PATIENCE
    assert not big.done()


def test_small_requests_go_past_a_big_one_for_a_while(lab):
    engine = lab.engine(max_rows=8, cache_tokens=240)
    flood(lab, engine, 8)
    engine.step()
    engine.submit(lab.ask(PROMPT, 200, tenant="big"))
    engine.step()
    future = engine.submit(lab.ask(PROMPT, 3, tenant="small"))
    step_until(engine, future.done)
    assert not tenants(engine)["big"]


def test_prompts_on_their_way_keep_their_own_tenant_waiting_only(lab):
    engine = lab.engine(prefill_tokens=10)
    for number in range(4):
        engine.submit(lab.ask(range(3 + number, 90 + number), 5, tenant="long"))
    engine.step()
    future = engine.submit(lab.ask(PROMPT[:3], 1, tenant="short"))
    engine.step()
    assert future.done()
    assert engine.waiting == 3


def test_scoring_without_a_free_row_needs_none(lab):
    engine = lab.engine(max_rows=1)
    engine.submit(lab.ask(PROMPT, 100))
    engine.step()
    future = engine.submit(lab.ask(PROMPT[:5], 1, prompt_logprobs=True))
    engine.step()
    assert future.done()


def test_a_step_looks_at_few_of_those_who_wait(lab, monkeypatch):
    engine = lab.engine(max_rows=2)
    futures = flood(lab, engine, 2000)
    engine.step()
    looked = []
    over = type(engine._table.rows[0].job).over
    monkeypatch.setattr(
        type(engine._table.rows[0].job), "over", property(lambda job: looked.append(1) or over.fget(job))
    )
    for _ in range(3):
        engine.step()
    assert len(looked) < 100
    for future in futures[5:]:
        future.cancel()
    engine.step()
    assert engine.waiting <= 5


def test_cancelled_while_waiting_is_forgotten_at_once(lab):
    engine = lab.engine(max_rows=1)
    futures = flood(lab, engine, 50)
    engine.step()
    for future in futures:
        future.cancel()
    engine.step()
    assert engine.idle
