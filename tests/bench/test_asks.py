from asks import (
    COMPLETION_TOKENS,
    FIRST_ID,
    PROMPT_TOKENS,
    Arrivals,
    Ask,
    asks,
    from_plain,
    over_policies,
    probes,
    to_plain,
    tokens,
)

VOCAB = 512


def test_rounds_have_the_same_lengths_and_arrivals_but_other_prompts() -> None:
    first, second = asks(64, VOCAB, round_=1, spread=3.0), asks(64, VOCAB, round_=2, spread=3.0)
    assert first == asks(64, VOCAB, round_=1, spread=3.0)
    assert [(len(ask.prompt), ask.max_tokens, ask.at) for ask in first] == [
        (len(ask.prompt), ask.max_tokens, ask.at) for ask in second
    ]
    assert all(mine.prompt != other.prompt for mine, other in zip(first, second, strict=True))


def test_asks_are_mixed_and_come_in_order_within_the_spread() -> None:
    some = asks(64, VOCAB, spread=3.0)
    arrivals = [ask.at for ask in some]
    assert arrivals[0] == 0.0 and arrivals == sorted(arrivals) and 2.0 < arrivals[-1] <= 3.0
    for lengths, (least, most) in (
        ([len(ask.prompt) for ask in some], PROMPT_TOKENS),
        ([ask.max_tokens for ask in some], COMPLETION_TOKENS),
    ):
        assert least <= min(lengths) < 2 * least and most - least < max(lengths) <= most
    assert all(FIRST_ID <= token < VOCAB for ask in some for token in ask.prompt)
    assert tokens(some) == sum(ask.max_tokens for ask in some)


def test_adapters_and_the_base_model_get_equal_parts() -> None:
    spread = [ask.policy for ask in over_policies(asks(18, VOCAB), 8)]
    assert {policy: spread.count(policy) for policy in spread} == dict.fromkeys([None, *range(8)], 2)


def test_probes_want_one_token_each_all_the_time() -> None:
    some = probes(4, VOCAB, round_=1, seconds=8.0)
    assert [(ask.max_tokens, ask.at) for ask in some] == [(1, 0.0), (1, 2.0), (1, 4.0), (1, 6.0)]


def test_asks_survive_the_way_to_another_process() -> None:
    some = over_policies(asks(9, VOCAB, spread=1.0), 8)
    assert from_plain(to_plain(some)) == some


def test_asks_are_let_in_when_their_time_has_come() -> None:
    some = [Ask((1,), 1, at) for at in (0.0, 1.0, 2.0)]
    arrivals = Arrivals(some, None)
    assert arrivals.due(0.5, 0) == [(0, some[0])] and arrivals.next() == 1.0
    assert arrivals.due(2.5, 7) == [(1, some[1]), (2, some[2])] and arrivals.next() is None
    assert arrivals.came == [0.0, 1.0, 2.0]


def test_a_bound_holds_asks_back_and_they_count_from_when_they_were_let_in() -> None:
    some = [Ask((1,), 1) for _ in range(3)]
    arrivals = Arrivals(some, 2)
    assert [index for index, _ in arrivals.due(0.0, 0)] == [0, 1]
    assert arrivals.due(1.0, 2) == []
    assert [index for index, _ in arrivals.due(3.0, 1)] == [2]
    assert arrivals.came == [0.0, 0.0, 3.0]
