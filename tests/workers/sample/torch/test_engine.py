import pytest
import torch

from openrl.domain.errors import EngineBusy, FieldInvalid, WeightsNotArrived
from openrl.domain.sampling import StopReason

PROMPT = list(range(20, 33))


def test_sampled_logprobs_are_those_of_a_whole_forward_pass_at_any_temperature(lab):
    base = lab.base()
    requests = [lab.ask(PROMPT, 12, temperature=t, seed=3, top_p=0.9) for t in (1.0, 0.5, 2.0, 0.0)]
    for request, result in zip(requests, lab.run(lab.engine(base), *requests), strict=True):
        drawn = lab.tokens(result.sequences[0])
        logits = lab.logits(base, PROMPT + drawn)[len(PROMPT) - 1 : -1]
        expected = torch.log_softmax(logits / (request.params.temperature or 1.0), -1)[range(12), drawn]
        assert torch.allclose(torch.tensor(lab.array(result.sequences[0].logprobs)), expected, atol=1e-4)


def test_a_seed_gives_the_same_sample_alone_and_in_a_crowd(lab):
    engine = lab.engine()
    wanted = lab.ask(PROMPT, 10, seed=42, num_samples=3)
    alone = lab.run(engine, wanted)[0]
    crowd = [lab.ask(range(3, 3 + n), 15, seed=n) for n in range(1, 9)]
    together = lab.run(engine, *crowd[:4], wanted, *crowd[4:])[4]
    assert [lab.tokens(s) for s in together.sequences] == [lab.tokens(s) for s in alone.sequences]
    assert len({tuple(lab.tokens(s)) for s in alone.sequences}) == 3


def test_without_a_seed_samples_differ(lab):
    first, second = lab.run(lab.engine(), lab.ask(PROMPT, 12), lab.ask(PROMPT, 12))
    assert lab.tokens(first.sequences[0]) != lab.tokens(second.sequences[0])


def test_samples_end_at_their_stops_and_keep_the_stop_token(lab):
    engine = lab.engine()
    free = lab.tokens(lab.run(engine, lab.ask(PROMPT, 12, temperature=0.0))[0].sequences[0])
    token = next(token for token in free[1:] if free.index(token) > 0)
    text = "".join(chr(ord("a") + token % 26) for token in free)
    stopped, spelled, length = lab.run(
        engine,
        lab.ask(PROMPT, 12, temperature=0.0, stop_tokens=(token,)),
        lab.ask(PROMPT, 12, temperature=0.0, stop_strings=(text[2:5],)),
        lab.ask(PROMPT, 4, temperature=0.0),
    )
    assert lab.tokens(stopped.sequences[0]) == free[: free.index(token) + 1]
    assert lab.tokens(spelled.sequences[0]) == free[: text.index(text[2:5]) + 3]
    assert (stopped.sequences[0].stop_reason, length.sequences[0].stop_reason) == (StopReason.STOP, StopReason.LENGTH)
    assert lab.tokens(length.sequences[0]) == free[:4]


def test_the_models_own_end_is_obeyed_unless_told_not_to(lab):
    base = lab.base()
    engine = lab.engine(base)
    free = lab.tokens(lab.run(engine, lab.ask(PROMPT, 12, temperature=0.0))[0].sequences[0])
    kept, base.eos_token_ids = base.eos_token_ids, (free[3],)
    try:
        ended, whole = lab.run(
            engine, lab.ask(PROMPT, 12, temperature=0.0, stop_at_eos=True), lab.ask(PROMPT, 12, temperature=0.0)
        )
    finally:
        base.eos_token_ids = kept
    assert lab.tokens(ended.sequences[0]) == free[: free.index(free[3]) + 1]
    assert lab.tokens(whole.sequences[0]) == free


def test_adapters_and_the_base_share_a_batch_and_equal_each_alone(lab):
    base = lab.base()
    engine = lab.engine(base)
    for number, (rank, part) in enumerate([(4, ""), (4, ""), (2, ""), (4, "self_attn")]):
        engine.put(f"p{number}", *lab.adapter(base, number, rank, part))
    policies = ["p0", None, "p1", "p0", "p2", "p3", None, "p1"]
    requests = [lab.ask(PROMPT[: 3 + i], 10, policy=policy, temperature=0.0) for i, policy in enumerate(policies)]
    alone = [lab.run(engine, request)[0] for request in requests]
    together = lab.run(engine, *requests)
    for one, other in zip(alone, together, strict=True):
        assert lab.tokens(one.sequences[0]) == lab.tokens(other.sequences[0])
        assert lab.array(one.sequences[0].logprobs) == pytest.approx(lab.array(other.sequences[0].logprobs), abs=1e-4)
    same = [lab.ask(PROMPT, 10, policy=policy, temperature=0.0) for policy in (None, "p0", "p1", "p2", "p3")]
    assert len({tuple(lab.tokens(result.sequences[0])) for result in lab.run(engine, *same)}) == 5


def test_samples_of_one_prompt_share_one_prefill_even_across_requests(lab, monkeypatch):
    base = lab.base()
    engine = lab.engine(base)
    passes = []
    whole = base.hidden
    monkeypatch.setattr(base, "hidden", lambda ids, **kw: passes.append(tuple(ids.shape)) or whole(ids, **kw))
    first = engine.submit(lab.ask(PROMPT, 20, num_samples=3, temperature=0.0))
    engine.step()
    second = engine.submit(lab.ask(PROMPT, 20, temperature=0.0))
    results = lab.finish(engine, first, second)
    assert [shape for shape in passes if shape[1] > 1] == [(1, len(PROMPT))]
    assert len({tuple(lab.tokens(s)) for result in results for s in result.sequences}) == 1


def test_more_samples_than_rows_take_turns(lab):
    engine = lab.engine(max_rows=2)
    requests = [lab.ask(PROMPT, 6, seed=1, num_samples=5), lab.ask(PROMPT[:4], 6, seed=2)]
    few = lab.run(engine, *requests)
    many = lab.run(lab.engine(), *requests)
    for one, other in zip(few, many, strict=True):
        assert [lab.tokens(s) for s in one.sequences] == [lab.tokens(s) for s in other.sequences]


def test_a_full_cache_makes_requests_wait(lab):
    engine = lab.engine(cache_tokens=64)
    futures = [engine.submit(lab.ask(PROMPT, 12, temperature=0.0)) for _ in range(6)]  # 24 tokens each: two fit
    most = 0
    while not engine.idle:
        engine.step()
        most = max(most, engine.rows)
    assert most == 2
    assert len({tuple(lab.tokens(future.result().sequences[0])) for future in futures}) == 1


def test_scoring_a_prompt_needs_no_place_in_the_cache(lab):
    engine = lab.engine(cache_tokens=8)
    result = lab.run(engine, lab.ask(PROMPT, 1, prompt_logprobs=True))[0]
    assert len(result.sequences) == 1
    assert len(lab.tokens(result.sequences[0])) == 1
    assert result.prompt_logprobs.shape == (len(PROMPT),)
    assert engine._table.cache._data.numel() == 0


def test_no_samples_and_no_tokens_are_answered_with_nothing(lab):
    none, empty, scored = lab.run(
        lab.engine(),
        lab.ask(PROMPT, num_samples=0),
        lab.ask(PROMPT, 0, num_samples=2, topk_sample_logprobs=3),
        lab.ask(PROMPT, num_samples=0, prompt_logprobs=True),
    )
    assert none.sequences == ()
    assert [lab.tokens(s) for s in empty.sequences] == [[], []]
    assert empty.sequences[0].top_logprobs.token_ids.shape == (0, 3)
    assert scored.prompt_logprobs.shape == (len(PROMPT),)


def test_top_logprobs_of_sampled_positions_hold_the_sampled_token_when_greedy(lab):
    result = lab.run(lab.engine(), lab.ask(PROMPT, 5, temperature=0.0, topk_sample_logprobs=3), lab.ask(PROMPT, 5))[0]
    top = result.sequences[0].top_logprobs
    assert top.token_ids.shape == top.logprobs.shape == (5, 3)
    assert lab.array(top.token_ids)[:, 0].tolist() == lab.tokens(result.sequences[0])
    assert lab.array(top.logprobs)[:, 0] == pytest.approx(lab.array(result.sequences[0].logprobs))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompt": PROMPT, "max_tokens": 250}, "sampling_params.max_tokens"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [5, 97]}, "prompt"),
        ({"prompt": [5] * 300, "max_tokens": 1}, "prompt"),
        ({"prompt": PROMPT, "temperature": -1.0}, "sampling_params.temperature"),
        ({"prompt": PROMPT, "temperature": float("nan")}, "sampling_params.temperature"),
        ({"prompt": PROMPT, "temperature": 1e-40}, "sampling_params.temperature"),
        ({"prompt": PROMPT, "top_p": 0.0}, "sampling_params.top_p"),
        ({"prompt": PROMPT, "top_k": 0}, "sampling_params.top_k"),
        ({"prompt": PROMPT, "top_k": -2}, "sampling_params.top_k"),
        ({"prompt": PROMPT, "num_samples": -1}, "num_samples"),
        ({"prompt": PROMPT, "topk_sample_logprobs": 98}, "topk_sample_logprobs"),
        ({"prompt": PROMPT, "stop_tokens": (97,)}, "sampling_params.stop"),
        ({"prompt": PROMPT, "prompt_logprobs": True, "prompt_logprobs_last_n": 13}, "prompt_logprobs_last_n"),
    ],
)
def test_what_can_never_be_served_is_refused_by_name(lab, fields, named):
    future = lab.engine().submit(lab.ask(**fields))
    with pytest.raises(FieldInvalid) as caught:
        future.result(timeout=0)
    assert caught.value.field == named


def test_a_request_larger_than_the_whole_cache_is_refused(lab):
    with pytest.raises(FieldInvalid, match="10 after a prompt of 13 is more than this worker's cache of 16"):
        lab.engine(cache_tokens=16).submit(lab.ask(PROMPT, 10)).result(timeout=0)


def test_a_prompt_larger_than_the_whole_cache_is_not_computed_in_one_endless_pass(lab, monkeypatch):
    monkeypatch.setattr("workers.sample.torch.engine.PART", 20)
    engine = lab.engine(cache_tokens=16)
    lab.run(engine, lab.ask([5] * 20, 1, prompt_logprobs=True))
    with pytest.raises(FieldInvalid, match="has 21 tokens, more than this worker's cache of 16") as caught:
        engine.submit(lab.ask([5] * 21, 1, prompt_logprobs=True)).result(timeout=0)
    assert caught.value.field == "prompt"


def test_a_prompt_is_scored_without_samples_however_many_tokens_they_might_have_had(lab):
    asked = lab.ask(PROMPT, 100, num_samples=0, prompt_logprobs=True)
    (result,) = lab.run(lab.engine(cache_tokens=64), asked)
    assert result.prompt_logprobs.shape == (len(PROMPT),)


def test_a_missing_policy_fails_only_its_own_request(lab):
    engine = lab.engine()
    lost = engine.submit(lab.ask(PROMPT, policy="nowhere"))
    fine = engine.submit(lab.ask(PROMPT))
    lab.finish(engine)
    assert len(fine.result(timeout=0).sequences) == 1
    with pytest.raises(WeightsNotArrived):
        lost.result(timeout=0)


def test_an_error_while_computing_prompts_fails_only_the_one_at_fault(lab, monkeypatch):
    base = lab.base()
    engine = lab.engine(base)
    whole = base.hidden

    def brittle(ids, **kw):
        if bool((ids == 66).any()) and ids.shape[1] > 1:
            raise RuntimeError("66")
        return whole(ids, **kw)

    monkeypatch.setattr(base, "hidden", brittle)
    good, bad, other = (engine.submit(lab.ask(prompt, 5)) for prompt in ([3, 4], [66, 4], [5, 6, 7]))
    lab.finish(engine)
    assert len(good.result(timeout=0).sequences) == len(other.result(timeout=0).sequences) == 1
    with pytest.raises(RuntimeError, match="66"):
        bad.result(timeout=0)


def test_an_error_in_a_decode_step_hangs_nobody(lab, monkeypatch):
    base = lab.base()
    engine = lab.engine(base, max_rows=2)
    whole, calls = base.hidden, []

    def once(ids, **kw):
        if ids.shape[1] == 1:
            calls.append(ids)
            if len(calls) == 2:
                raise RuntimeError("out of memory")
        return whole(ids, **kw)

    monkeypatch.setattr(base, "hidden", once)
    futures = [engine.submit(lab.ask(PROMPT[:n], 6)) for n in (3, 4, 5, 6)]
    lab.finish(engine)
    assert [future.exception(timeout=0) is None for future in futures] == [False, False, True, True]


def test_weights_that_give_nonsense_fail_their_own_request(lab):
    base = lab.base()
    engine = lab.engine(base)
    shape, flat = lab.adapter(base, 1)
    engine.put("broken", shape, flat * 1e30)
    broken, fine = engine.submit(lab.ask(PROMPT, policy="broken")), engine.submit(lab.ask(PROMPT))
    lab.finish(engine)
    assert len(fine.result(timeout=0).sequences) == 1
    with pytest.raises(FieldInvalid, match="not finite"):
        broken.result(timeout=0)


def test_a_text_decoder_that_fails_concerns_only_who_uses_it(lab):
    def broken(_):
        raise ValueError("no text")

    engine = lab.engine(decode=broken)
    spelled, plain = engine.submit(lab.ask(PROMPT, stop_strings=("x",))), engine.submit(lab.ask(PROMPT))
    lab.finish(engine)
    assert len(plain.result(timeout=0).sequences) == 1
    with pytest.raises(ValueError, match="no text"):
        spelled.result(timeout=0)


def test_a_cancelled_request_leaves_at_once_and_the_others_go_on(lab):
    base = lab.base()
    engine = lab.engine(base)
    engine.put("p", *lab.adapter(base, 1))
    alone = lab.run(engine, lab.ask(PROMPT, 20, temperature=0.0))[0]
    gone, kept = engine.submit(lab.ask(PROMPT, 200, policy="p")), engine.submit(lab.ask(PROMPT, 20, temperature=0.0))
    engine.step()
    assert engine.rows == 2
    engine.cancel(gone)
    engine.step()
    assert engine.rows == 1
    assert lab.tokens(lab.finish(engine, kept)[0].sequences[0]) == lab.tokens(alone.sequences[0])
    assert engine.adapters._policies["p"].holders == 0


def test_closing_fails_what_is_unfinished(lab):
    engine = lab.engine(max_rows=1)
    running, waiting = engine.submit(lab.ask(PROMPT, 100)), engine.submit(lab.ask(PROMPT, 100))
    engine.step()
    engine.close()
    assert engine.idle
    for future in (running, waiting):
        with pytest.raises(EngineBusy):
            future.result(timeout=0)


def test_a_step_tells_whom_it_served_down_to_samples_of_one_token(lab):
    engine = lab.engine(max_rows=2)
    asked = (("long", 3), ("short", 1), ("late", 2))
    futures = [
        engine.submit(lab.ask(PROMPT[:at], n, tenant="t", sampler=name)) for at, (name, n) in enumerate(asked, 4)
    ]
    served = []
    while not engine.idle:
        engine.step()
        served.append({owner.name for owner in engine.served})
    assert lab.finish(engine, *futures)
    assert served[0] >= {"long", "short"} and served[-1] <= {"long", "late"}
    assert set().union(*served) == {"long", "short", "late"} and all(served)
    assert {owner.tenant for owner in engine.served} == {"t"}
    engine.step()
    assert not engine.served
