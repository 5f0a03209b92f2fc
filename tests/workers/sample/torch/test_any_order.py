"""Whatever is asked together, and whatever the cache has room for: each request gets what it gets alone."""

import random

import pytest


def beginnings(luck, vocab):
    """A few long beginnings that prompts share."""
    return [[luck.randrange(3, vocab) for _ in range(length)] for length in (40, 70, 110)]


def some_request(lab, luck, shared, answers, policies):
    start = luck.choice(shared)[: luck.choice((20, 33, 64, 110))] if luck.random() < 0.7 else []
    if answers and luck.random() < 0.3:
        start = luck.choice(answers)
    prompt = (start + [luck.randrange(3, lab.vocab) for _ in range(luck.choice((1, 5, 40)))])[:200]
    scores = luck.random() < 0.25
    return lab.ask(
        prompt,
        luck.choice((1, 2, 9, 20)),
        temperature=0.0,
        num_samples=luck.choice((1, 1, 1, 2, 5)),
        policy=luck.choice(policies),
        prompt_logprobs=scores,
        prompt_logprobs_last_n=min(7, max(1, len(prompt) - 1)) if scores and luck.random() < 0.5 else None,
        topk_prompt_logprobs=2 if scores else 0,
        tenant=luck.choice("ab"),
        sampler=luck.choice("xy"),
    )


def answer(lab, result):
    scores = None if result.prompt_logprobs is None else lab.array(result.prompt_logprobs)
    return [lab.tokens(sequence) for sequence in result.sequences], scores


def alone(lab, base, adapters, request):
    engine = lab.engine(base, prefill_tokens=100_000)
    for key, adapter in adapters.items():
        engine.put(key, *adapter)
    return lab.run(engine, request)[0]


@pytest.mark.parametrize("seed", (3, 5))
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_everybody_gets_what_they_get_alone(lab, family, seed):
    luck, base = random.Random(seed), lab.base(family)
    adapters = {f"p{number}": lab.adapter(base, number) for number in range(2)}
    engine = lab.engine(
        base,
        max_rows=luck.choice((3, 6)),
        cache_tokens=luck.choice((600, 1500, 5000)),
        prefill_tokens=luck.choice((16, 50, 200)),
    )
    for key, adapter in adapters.items():
        engine.put(key, *adapter)
    shared, answers, asked = beginnings(luck, lab.vocab), [], []
    for _ in range(14):
        request = some_request(lab, luck, shared, answers, [None, None, *adapters])
        future = engine.submit(request)
        asked.append((request, future))
        for _ in range(luck.choice((0, 0, 1, 4))):
            engine.step()
        if luck.random() < 0.15:
            engine.cancel(luck.choice(asked)[1])
        answers = [
            [*request.prompt, *lab.tokens(future.result().sequences[0])]
            for request, future in asked
            if future.done() and not future.cancelled() and len(request.prompt) < 120
        ]
    lab.finish(engine)
    for request, future in asked:
        if not future.cancelled():
            tokens, scores = answer(lab, future.result(timeout=0))
            expected, expected_scores = answer(lab, alone(lab, base, adapters, request))
            assert tokens == expected
            assert scores == pytest.approx(expected_scores, abs=1e-4, nan_ok=True)
    assert engine.prompt_tokens_reused > 0
    assert not any(policy.holders for policy in engine.adapters._policies.values())
