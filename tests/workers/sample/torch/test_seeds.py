"""What a seed promises: the same bits whoever shares the batch."""

import pytest
import torch


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


def test_rows_without_a_seed_are_decoded_the_quick_way(lab, monkeypatch):
    base = lab.base()
    steady = []
    whole = base.steady
    monkeypatch.setattr(base, "steady", lambda lengths: steady.append(list(lengths)) or whole(lengths))
    engine = lab.engine(base)
    lab.run(engine, lab.ask([5, 6, 7], 3), lab.ask([5, 6, 7], 3, temperature=0.0))
    assert steady == []
    lab.run(engine, lab.ask([5, 6, 7], 3, seed=1), lab.ask([5, 6], 3))
    assert steady in ([[3 + 1, 2 + 1], [3 + 2, 2 + 2]], [[2 + 1, 3 + 1], [2 + 2, 3 + 2]])
