"""Who is let in, and when."""

from collections import Counter

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


def test_a_request_that_needs_much_room_is_not_starved_by_small_ones(lab):
    engine = lab.engine(max_rows=8, cache_tokens=240)
    small = flood(lab, engine, 1000)
    engine.step()
    big = engine.submit(lab.ask(PROMPT, 200, tenant="big"))
    step_until(engine, lambda: tenants(engine)["big"], 20 * PATIENCE)
    assert sum(future.done() for future in small) < 8 * 2 * PATIENCE
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
