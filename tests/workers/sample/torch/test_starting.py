"""Prompts computed in parts, and beginnings computed once."""

import numpy as np
import pytest
import torch

from openrl.domain.errors import FieldInvalid
from openrl.domain.tensor import DType
from workers.model.arrays import to_domain

LONG = [int(token) for token in np.random.default_rng(2).integers(3, 97, 150)]
FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "phi3", "gemma3_text")


@pytest.fixture
def passes(lab, monkeypatch):
    """The shapes of the prompt passes of the llama base."""
    base, shapes = lab.base(), []
    whole = base.hidden
    monkeypatch.setattr(base, "hidden", lambda ids, **kw: shapes.append(tuple(ids.shape)) or whole(ids, **kw))
    return shapes


def greedy(lab, prompt, count=8, **fields):
    return lab.ask(prompt, count, temperature=0.0, **fields)


def tokens(lab, result):
    return [lab.tokens(sequence) for sequence in result.sequences]


def same(lab, one, other):
    assert tokens(lab, one) == tokens(lab, other)
    for mine, theirs in zip(one.sequences, other.sequences, strict=True):
        assert lab.array(mine.logprobs) == pytest.approx(lab.array(theirs.logprobs), abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("part", [7, 64])
def test_a_prompt_in_parts_gives_what_it_gives_at_once(lab, family, part):
    base = lab.base(family)
    requests = [greedy(lab, LONG, num_samples=2), greedy(lab, LONG[5:60]), greedy(lab, LONG[9:12])]
    whole = lab.run(lab.engine(base, prefill_tokens=10_000), *requests)
    parts = lab.run(lab.engine(base, prefill_tokens=part), *requests)
    for one, other in zip(whole, parts, strict=True):
        same(lab, one, other)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_in_parts_is_scored_as_at_once(lab, family):
    base = lab.base(family)
    targets = torch.full((len(LONG) - 1, 2), -1)
    targets[3, 0], targets[100, 1], targets[-1, 0] = 7, 8, 9
    asked = {"topk_prompt_logprobs": 3, "target_prompt_logprobs": to_domain(targets, DType.INT64)}
    request = lab.ask(LONG, 1, prompt_logprobs=True, prompt_alternatives=2, seed=4, **asked)
    (whole,) = lab.run(lab.engine(base, prefill_tokens=10_000), request)
    engine = lab.engine(base, prefill_tokens=32)
    (parts,) = lab.run(engine, request)
    assert engine.prompt_tokens == len(LONG)
    for name in ("prompt_logprobs", "target_prompt_logprobs"):
        got, wanted = lab.array(getattr(parts, name)), lab.array(getattr(whole, name))
        assert got == pytest.approx(wanted, abs=1e-5, nan_ok=True)
    for one, other in zip(parts.prompt_alternatives, whole.prompt_alternatives, strict=True):
        assert lab.array(one) == pytest.approx(lab.array(other), abs=1e-5)
    assert parts.top_prompt_logprobs.token_ids == whole.top_prompt_logprobs.token_ids
    got, wanted = (lab.array(each.top_prompt_logprobs.logprobs) for each in (parts, whole))
    assert got == pytest.approx(wanted, abs=1e-5)


def test_samples_go_on_while_a_long_prompt_is_computed_in_bounded_parts(lab, passes):
    engine = lab.engine(prefill_tokens=20)
    engine.submit(greedy(lab, LONG[:4], 100))
    engine.step()
    late = engine.submit(greedy(lab, LONG, 2))
    del passes[:]
    for step in range(7):
        drawn = engine.tokens_drawn
        engine.step()
        assert engine.tokens_drawn == drawn + 1
        assert engine.prompt_tokens == 4 + 20 * (step + 1)
    assert [shape for shape in passes if shape[1] > 1] == [(1, 20)] * 7
    lab.finish(engine)
    assert late.done()


def test_a_short_prompt_does_not_wait_for_a_long_one(lab):
    engine = lab.engine(prefill_tokens=20)
    long, short = engine.submit(greedy(lab, LONG, 1)), engine.submit(greedy(lab, LONG[100:108], 1, tenant="other"))
    engine.step()
    assert short.done() and not long.done()


def test_requests_that_begin_alike_compute_it_once_when_they_come_together(lab, passes):
    engine = lab.engine()
    prompts = [[*LONG[:80], *LONG[80 + number : 90 + number]] for number in range(4)]
    results = lab.run(engine, *[greedy(lab, prompt) for prompt in prompts])
    assert engine.prompt_tokens == 90 + 3 * 10
    assert engine.prompt_tokens_reused == 3 * 80
    assert [shape for shape in passes if shape[1] > 1] == [(1, 90), (3, 10)]
    for prompt, result in zip(prompts, results, strict=True):
        same(lab, result, lab.run(lab.engine(), greedy(lab, prompt))[0])


def test_a_prompt_that_begins_like_a_sample_being_drawn_goes_on_from_there(lab):
    engine = lab.engine()
    first = engine.submit(greedy(lab, LONG[:50], 100))
    while engine.tokens_drawn < 20:
        engine.step()
    drawn = engine._table.rows[0].tokens[:15]
    turn = greedy(lab, [*LONG[:50], *drawn, 9, 8, 7])
    before = engine.prompt_tokens
    second = engine.submit(turn)
    lab.finish(engine, first)
    assert (engine.prompt_tokens - before, engine.prompt_tokens_reused) == (3, 65)
    same(lab, second.result(), lab.run(lab.engine(), turn)[0])


def test_the_next_turn_of_a_talk_computes_only_what_is_new(lab):
    engine = lab.engine()
    (first,) = lab.run(engine, greedy(lab, LONG[:50], 20))
    turn = greedy(lab, [*LONG[:50], *lab.tokens(first.sequences[0]), 9, 8, 7])
    (second,) = lab.run(engine, turn)
    assert engine.prompt_tokens == 50 + 1 + 3  # the last token drawn was never fed
    assert engine.prompt_tokens_reused == 69
    same(lab, second, lab.run(lab.engine(), turn)[0])


def test_talks_that_fill_the_cache_each_go_on_where_they_were(lab):
    engine = lab.engine(max_rows=4, cache_tokens=4 * 128)
    talks = [LONG[number : number + 50] for number in range(0, 80, 20)]
    answers = lab.run(engine, *[greedy(lab, talk, 20) for talk in talks])
    turns = [[*talk, *lab.tokens(one.sequences[0]), 9] for talk, one in zip(talks, answers, strict=True)]
    lab.run(engine, *[greedy(lab, turn) for turn in turns])
    assert engine.prompt_tokens_reused == 4 * 69


def test_the_same_prompt_again_is_not_computed_at_all(lab, passes):
    engine = lab.engine()
    results = [lab.run(engine, greedy(lab, LONG, count))[0] for count in (8, 1, 8)]
    assert (engine.prompt_tokens, engine.prompt_tokens_reused) == (150, 300)
    assert [shape for shape in passes if shape[1] > 1] == [(1, 150)]
    same(lab, results[0], results[2])
    assert tokens(lab, results[1])[0] == tokens(lab, results[0])[0][:1]


def test_a_prompt_to_be_scored_is_computed_from_the_first_position_asked_for(lab):
    engine = lab.engine()
    lab.run(engine, greedy(lab, LONG))
    wanted = lab.ask(LONG, 1, prompt_logprobs=True, prompt_logprobs_last_n=10)
    (result,) = lab.run(engine, wanted)
    assert engine.prompt_tokens_reused == 150 - 11
    (whole,) = lab.run(engine, lab.ask(LONG, 1, prompt_logprobs=True))
    assert engine.prompt_tokens_reused == 150 - 11
    assert lab.array(result.prompt_logprobs)[-10:] == pytest.approx(lab.array(whole.prompt_logprobs)[-10:], abs=1e-5)


def test_prefixes_are_those_of_one_policy(lab):
    base = lab.base()
    engine = lab.engine(base, adapters=1)
    for key in ("p0", "p1"):
        lab.run(engine, greedy(lab, LONG))
        engine.put(key, *lab.adapter(base, int(key[1])))
        (result,) = lab.run(engine, greedy(lab, LONG, policy=key))
        fresh = lab.engine(base)
        fresh.put(key, *lab.adapter(base, int(key[1])))
        same(lab, result, lab.run(fresh, greedy(lab, LONG, policy=key))[0])
    assert engine.prompt_tokens_reused == 150  # the base model's own
    assert {strand.policy for strand in engine._table._resting} == {None, "p1"}


def test_forgotten_prefixes_are_computed_again(lab):
    engine = lab.engine()
    lab.run(engine, greedy(lab, LONG))
    engine.forget_prefixes()
    lab.run(engine, greedy(lab, LONG))
    assert engine.prompt_tokens_reused == 0


def test_prefixes_are_never_in_the_way_of_rows(lab):
    engine = lab.engine(max_rows=4, cache_tokens=4 * 160, prefill_tokens=1000)
    for number in range(5):
        lab.run(engine, greedy(lab, LONG[number:]))
    futures = [engine.submit(greedy(lab, [*LONG[20 + number :], 5, 6, 7], 10)) for number in range(4)]
    engine.step()
    assert engine.rows == 4
    cache = engine._table.cache
    assert cache.rows * cache.length <= 4 * 160
    lab.finish(engine, *futures)


def test_a_half_computed_prompt_leaves_when_it_is_cancelled(lab):
    base = lab.base()
    engine = lab.engine(base, prefill_tokens=20)
    engine.put("p", *lab.adapter(base, 1))
    gone = engine.submit(greedy(lab, LONG, policy="p"))
    follower = engine.submit(greedy(lab, [*LONG[:100], 5], policy="p"))
    engine.step()
    engine.cancel(gone)
    engine.step()
    assert len(list(engine._starting)) == 1
    assert engine.adapters._policies["p"].holders == 1
    fresh = lab.engine(base)
    fresh.put("p", *lab.adapter(base, 1))
    lab.finish(engine)
    same(lab, follower.result(), lab.run(fresh, greedy(lab, [*LONG[:100], 5], policy="p"))[0])
    assert engine.adapters._policies["p"].holders == 0


def test_a_failure_in_a_part_fails_only_that_prompt_and_who_waits_for_it_computes_on_its_own(lab, monkeypatch):
    base = lab.base()
    engine = lab.engine(base, prefill_tokens=50)
    whole = base.hidden

    def brittle(ids, **kw):
        if ids.shape[1] > 1 and bool((ids == LONG[120]).any() & (ids == LONG[121]).any()) and not failing.done():
            raise RuntimeError("120")
        return whole(ids, **kw)

    monkeypatch.setattr(base, "hidden", brittle)
    failing = engine.submit(greedy(lab, LONG[:130]))
    fine = [engine.submit(greedy(lab, prompt, 20)) for prompt in ([*LONG[:90], 5, 6], LONG[:10])]
    lab.finish(engine)
    with pytest.raises(RuntimeError, match="120"):
        failing.result()
    monkeypatch.undo()
    for future, prompt in zip(fine, ([*LONG[:90], 5, 6], LONG[:10]), strict=True):
        same(lab, future.result(), lab.run(lab.engine(base), greedy(lab, prompt, 20))[0])


@pytest.mark.parametrize("part", ["", "k_proj", "v_proj"])
@pytest.mark.parametrize("count", [1, 5])
def test_nonsense_that_a_prompt_leaves_does_not_poison_who_has_the_row_next(lab, part, count):
    base = lab.base()
    engine = lab.engine(base, max_rows=2, prefill_tokens=20)
    shape, flat = lab.adapter(base, 1, part=part)
    engine.put("broken", shape, flat * 1e30)
    broken = engine.submit(greedy(lab, LONG, count, policy="broken", prompt_logprobs=count == 1))
    engine.step()
    with pytest.raises(FieldInvalid, match="not finite"):
        broken.result(timeout=0)
    assert engine.prompt_tokens <= 80
    assert torch.isfinite(engine._table.cache._data).all()
    asked = [greedy(lab, LONG[number : 5 + number], 9) for number in range(3)]
    for result, request in zip(lab.run(engine, *asked), asked, strict=True):
        same(lab, result, lab.run(lab.engine(base), request)[0])


def test_nonsense_that_comes_while_decoding_poisons_nobody(lab):
    base = lab.base()
    engine = lab.engine(base, max_rows=3)
    engine.put("broken", *lab.adapter(base, 1))
    broken, fine = (engine.submit(greedy(lab, LONG[:n], 20, policy=p)) for n, p in ((30, "broken"), (10, None)))
    engine.step()
    _, flat = engine.adapters._weights("broken")
    flat *= 1e30
    engine.adapters._joined = ((), engine.adapters._joined[1])
    engine._decoding._pass.forget()
    engine.step()
    with pytest.raises(FieldInvalid, match="not finite"):
        broken.result(timeout=0)
    assert torch.isfinite(engine._table.cache._data).all()
    lab.finish(engine)
    same(lab, fine.result(), lab.run(lab.engine(base), greedy(lab, LONG[:10], 20))[0])


def test_prefixes_of_dropped_policies_make_room(lab):
    base = lab.base()
    engine = lab.engine(base, adapters=1)
    lab.run(engine, greedy(lab, LONG[:50]))
    for key in ("p0", "p1"):
        engine.put(key, *lab.adapter(base, int(key[1])))
        lab.run(engine, greedy(lab, LONG[:50], policy=key))
        assert {strand.policy for strand in engine._table} == {None, key}
    engine.put("p2", *lab.adapter(base, 2))
    lab.run(engine, greedy(lab, LONG[:3]))
    assert {strand.policy for strand in engine._table} == {None}
