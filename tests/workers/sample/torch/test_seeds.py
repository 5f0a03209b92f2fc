"""What a seed promises: the same bits whoever shares the batch."""

import numpy as np
import pytest
import torch

from workers.sample.torch import decode_pass, gate, starts


@pytest.mark.parametrize(
    ("family", "dtype"), [("llama", "bfloat16"), ("gemma3_text", "bfloat16"), ("qwen2", "float32")]
)
def test_a_seeded_request_gives_the_same_bits_alone_and_in_a_crowd(lab, family, dtype):
    base = lab.fresh(family, getattr(torch, dtype))
    engine = lab.engine(base, max_rows=40)
    for number, (rank, part) in enumerate([(4, ""), (4, ""), (2, "mlp")]):
        engine.put(f"p{number}", *lab.adapter(base, number, rank, part))
    policies = [None, "p0", "p1", "p2"]
    wanted = [
        lab.ask(range(3, 6 + 9 * n), 7, seed=n, policy=policies[n % 4], top_p=0.9 if n % 2 else 1.0) for n in range(4)
    ]
    alone = [lab.run(engine, request)[0] for request in wanted]
    crowd = [lab.ask(range(9, 11 + 2 * n), 3 + n, policy=policies[n % 4]) for n in range(6)]
    same = [lab.ask(request.prompt, 9, policy=request.policy) for request in wanted[:2]]
    together = lab.run(engine, *crowd[:3], *same, *wanted, *crowd[3:])[5:9]
    for one, other in zip(alone, together, strict=True):
        assert one.sequences[0].tokens.data == other.sequences[0].tokens.data
        assert one.sequences[0].logprobs.data == other.sequences[0].logprobs.data


LONG = [int(token) for token in np.random.default_rng(5).integers(3, 97, 190)]
POLICIES = {None: None, "p0": (4, ""), "p1": (8, ""), "p2": (2, "mlp")}


@pytest.fixture(scope="module", params=["llama", "gemma3_text"])
def half(lasting_lab, request):
    return lasting_lab.fresh(request.param, torch.bfloat16)


@pytest.fixture
def engines(lab, half, monkeypatch):
    """Makes engines that compute seeded prompts in parts of 48 tokens."""
    return in_parts(lab, half, monkeypatch)


def in_parts(lab, base, patch):
    for module in (starts, gate):
        patch.setattr(module, "PART", 48)
    adapters = {key: lab.adapter(base, 3, *rank) for key, rank in POLICIES.items() if rank is not None}

    def make(**bounds):
        engine = lab.engine(base, **({"max_rows": 24, "cache_tokens": 24 * 256} | bounds))
        for key, adapter in adapters.items():
            engine.put(key, *adapter)
        return engine

    return make


def wanted(lab):
    """Seeded requests: prompts shorter and longer than a part, one token and many, scored and not."""
    scores = {"prompt_logprobs": True, "prompt_alternatives": 1}
    some = [(40, 6), (48, 6), (150, 6), (190, 1), (40, 1), (97, 5)]
    return [
        lab.ask(LONG[:n], count, seed=n, policy=policy, num_samples=2, **(scores if n in (97, 190) else {}))
        for (n, count), policy in zip(some, [*POLICIES, None, "p1"], strict=True)
    ]


def bits(result):
    scores = result.prompt_logprobs and result.prompt_logprobs.data
    return [(each.tokens.data, each.logprobs.data) for each in result.sequences], scores, result.prompt_alternatives


def same_bits(one, other):
    assert [bits(result) for result in one] == [bits(result) for result in other]


@pytest.fixture(scope="module")
def alone(lasting_lab, half):
    """What each is answered that has an engine to itself."""
    with pytest.MonkeyPatch.context() as patch:
        engines = in_parts(lasting_lab, half, patch)
        return [lasting_lab.run(engines(), request)[0] for request in wanted(lasting_lab)]


def test_a_seeded_prompt_is_the_same_whether_its_beginning_is_in_the_cache_or_not(lab, engines, alone):
    engine = engines()
    for policy in POLICIES:
        lab.run(engine, *[lab.ask(LONG[: n + 1], 3, policy=policy) for n in (20, 39, 70, 189)])
    reused = engine.prompt_tokens_reused
    same_bits([lab.run(engine, request)[0] for request in wanted(lab)], alone)
    same_bits(lab.run(engine, *wanted(lab)), alone)
    assert engine.prompt_tokens_reused == reused


@pytest.mark.parametrize("prefill_tokens", [10, 64, 500])
def test_a_seeded_prompt_is_the_same_however_much_is_computed_at_a_time_and_beside_whom(
    lab, engines, alone, prefill_tokens
):
    engine = engines(prefill_tokens=prefill_tokens)
    others = [lab.ask(LONG[n : 30 + 9 * n], 2 + n, policy=[*POLICIES][n % 4]) for n in range(6)]
    early = [engine.submit(request) for request in others[:3]]
    engine.step()
    futures = []
    for request, other in zip(wanted(lab), [*others[3:], *others[:3]], strict=True):
        futures += [engine.submit(other), engine.submit(request)]
        engine.step()
    same_bits(lab.finish(engine, *futures, *early)[1:12:2], alone)


def test_a_seeded_prompt_is_the_same_where_no_row_is_free_for_it(lab, engines, alone):
    engine = engines(max_rows=1, prefill_tokens=500)
    engine.submit(lab.ask(LONG[:5], 40))
    engine.step()
    same_bits(lab.run(engine, *wanted(lab)), alone)


def test_samples_go_on_while_a_long_seeded_prompt_is_computed(lab, engines):
    engine = engines(prefill_tokens=40)
    engine.submit(lab.ask(LONG[:4], 100))
    engine.step()
    late = engine.submit(lab.ask(LONG, 2, seed=1))
    for part in range(1, 4):
        drawn = engine.tokens_drawn
        engine.step()
        assert (engine.tokens_drawn, engine.prompt_tokens) == (drawn + 1, 4 + 48 * part)
    lab.finish(engine, late)


@pytest.mark.parametrize("alike", [True, False])
def test_rows_without_a_seed_are_decoded_the_quick_way(lab, monkeypatch, alike):
    base = lab.fresh()
    monkeypatch.setattr("workers.model.attention.rows_are_alike", lambda *_: alike)
    steady, whole = [], base.steady
    bands, banded = [], decode_pass.banded
    monkeypatch.setattr(base, "steady", lambda: steady.append(True) or whole())
    monkeypatch.setattr(decode_pass, "banded", lambda some: bands.append([b.rows.stop for b in some]) or banded(some))
    engine = lab.engine(base)
    lab.run(engine, lab.ask([5, 6, 7], 3), lab.ask([5, 6, 7], 3, temperature=0.0))
    assert (steady, bands) == ([], [[2], [2]])
    bands.clear()
    lab.run(engine, lab.ask([5, 6, 7], 3, seed=1), lab.ask([5, 6], 3))
    assert (steady, bands) == ([True, True], [[2], [2]] if alike else [[1, 2], [1, 2]])
