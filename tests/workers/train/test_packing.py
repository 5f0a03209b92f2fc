from array import array

from hypothesis import given
from hypothesis import strategies as st

from workers.train.packing import ATTENTION, FULL_TOKENS, WASTE, WORTH, Row, families, packs, passes, plan

lengths = st.lists(st.integers(1, 700), max_size=40)
limits = st.integers(1, 2000)


@given(lengths, limits)
def test_packs_hold_every_batch_once_in_order_within_the_limit(tokens: list[int], limit: int) -> None:
    made = list(packs(tokens, limit))
    assert [number for pack in made for number in pack] == list(range(len(tokens)))
    assert all(len(pack) == 1 or sum(tokens[number] for number in pack) <= limit for pack in made)


@given(lengths, limits)
def test_passes_hold_every_row_once_within_the_limit_and_waste_little(sizes: list[int], limit: int) -> None:
    rows = [Row(0, place, length) for place, length in enumerate(sizes)]
    made = list(passes(rows, limit))
    assert sorted((row for taken in made for row in taken), key=lambda row: row.place) == rows
    for taken in made:
        longest, real = max(row.length for row in taken), sum(row.length for row in taken)
        assert len(taken) == 1 or longest * len(taken) <= limit
        small = real - taken[-1].length < FULL_TOKENS
        assert small or longest * len(taken) - real <= WASTE * longest * len(taken)


def test_equal_rows_share_one_pass() -> None:
    rows = [Row(batch, 0, 128) for batch in range(8)]
    assert list(passes(rows, 1024)) == [rows]


words = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=30).map(lambda word: array("i", word).tobytes()))


def named(batches: list[list[bytes]]) -> dict[Row, bytes]:
    return {
        Row(batch, place, len(text) // 4): text for batch, rows in enumerate(batches) for place, text in enumerate(rows)
    }


def group(prompt: int, completions: list[int]) -> list[bytes]:
    """Texts that share `prompt` tokens and nothing after them."""
    return [bytes(4 * prompt) + bytes([number + 1] * 4 * length) for number, length in enumerate(completions)]


@given(st.lists(words, max_size=4), st.integers(1, 300))
def test_a_plan_holds_every_row_once_within_the_limit(batches: list[list[bytes]], limit: int) -> None:
    texts = named(batches)
    made = list(plan(list(texts), texts, limit))
    assert sorted((row.batch, row.place) for one in made for row in one.rows) == [(r.batch, r.place) for r in texts]
    for one in (one for one in made if one.folded and len(one.rows) > 1):
        found = [each for n in range(4) for each in families([r for r in one.rows if r.batch == n], texts, limit)]
        tokens, longest = sum(each.tokens for each in found), max(row.length for row in one.rows)
        assert tokens + ATTENTION * (longest * len(one.rows) - tokens) <= limit


@given(words, st.integers(1, 300))
def test_families_are_cut_to_the_limit(rows: list[bytes], limit: int) -> None:
    texts = named([rows])
    found = list(families(list(texts), texts, limit))
    assert sorted(row.place for each in found for row in each.rows) == list(range(len(rows)))
    assert all(each.cost <= limit or len(each.rows) == 1 for each in found)


def test_a_prompt_with_completions_is_folded_and_rows_alone_are_not() -> None:
    texts = named([group(64, [64] * 8)])
    (one,) = plan(list(texts), texts, 16_384)
    assert one.folded and len(one.rows) == 8
    alone = named([group(0, [128] * 8)])
    assert [one.folded for one in plan(list(alone), alone, 16_384)] == [False]


def test_prompts_that_save_too_little_are_not_folded() -> None:
    for prompt, folded in ((4, False), (30, True)):
        texts = named([group(prompt, [128] * 8)])
        (family,) = families(list(texts), texts, 16_384)
        assert family.held == 8 * (128 + prompt) and family.tokens == 8 * 128 + prompt
        assert family.pays is folded is (family.tokens <= WORTH * family.held)
        assert [one.folded for one in plan(list(texts), texts, 16_384)] == [folded]


def test_a_few_rows_join_a_folded_pass_and_many_do_not() -> None:
    for count, passes_wanted in ((2, [True]), (16, [True, False])):
        texts = named([group(64, [64] * 8), *(group(0, [100]) for _ in range(count))])
        assert [one.folded for one in plan(list(texts), texts, 16_384)] == passes_wanted


def test_the_same_prompt_in_two_batches_is_not_shared() -> None:
    texts = named([[bytes(400)], [bytes(400)]])
    assert [one.folded for one in plan(list(texts), texts, 16_384)] == [False]
