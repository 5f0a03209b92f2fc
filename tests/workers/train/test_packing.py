from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from workers.train.estimate import Load
from workers.train.packing import (
    ATTENTION,
    FULL_TOKENS,
    WASTE,
    WORTH,
    Holds,
    Pass,
    Portion,
    Row,
    families,
    halves,
    load_of,
    packs,
    passes,
    plan,
)

lengths = st.lists(st.integers(1, 700), max_size=40)
limits = st.integers(1, 2000)


@given(lengths, limits)
def test_packs_hold_every_batch_once_in_order_within_the_limit(tokens: list[int], limit: int) -> None:
    made = list(packs([Portion(each, 0, 0) for each in tokens], limit))
    assert [number for pack in made for number in pack] == list(range(len(tokens)))
    assert all(len(pack) == 1 or sum(tokens[number] for number in pack) <= limit for pack in made)


@given(lengths, limits)
def test_passes_hold_every_row_once_within_the_limit_and_waste_little(sizes: list[int], limit: int) -> None:
    rows = [Row(0, place, length) for place, length in enumerate(sizes)]
    made = [one.rows for one in passes(rows, limit)]
    assert sorted((row for taken in made for row in taken), key=lambda row: row.place) == rows
    for taken in made:
        longest, real = max(row.length for row in taken), sum(row.length for row in taken)
        assert len(taken) == 1 or longest * len(taken) <= limit
        small = real - taken[-1].length < FULL_TOKENS
        assert small or longest * len(taken) - real <= WASTE * longest * len(taken)


def test_equal_rows_share_one_pass() -> None:
    rows = [Row(batch, 0, 128) for batch in range(8)]
    assert list(passes(rows, 1024)) == [Pass(rows)]


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
        load = load_of(one, texts)
        assert load.tokens + int(ATTENTION * (load.longest * len(one.rows) - load.tokens)) <= limit


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


def holding(tokens: int) -> Holds:
    """Memory for so many tokens in a pass, for four times as many with recomputation."""
    return lambda load, recompute: load.tokens <= tokens * (4 if recompute else 1)


@given(lengths, limits, st.integers(1, 1500))
def test_passes_fit_into_memory_unless_a_row_alone_does_not(sizes: list[int], limit: int, room: int) -> None:
    rows = [Row(0, place, length) for place, length in enumerate(sizes)]
    made = list(passes(rows, limit, holding(room)))
    assert sorted((row for one in made for row in one.rows), key=lambda row: row.place) == rows
    for one in made:
        load = load_of(one, {})
        assert len(one.rows) == 1 or holding(room)(load, one.recompute)
        assert one.recompute or load.tokens <= room


def test_recomputation_comes_only_where_passes_would_get_too_small() -> None:
    rows = [Row(0, place, 128) for place in range(16)]
    roomy = list(passes(rows, 16_384, holding(600)))
    assert [(len(one.rows), one.recompute) for one in roomy] == [(4, False)] * 4
    tight = list(passes(rows, 16_384, holding(400)))
    assert [(len(one.rows), one.recompute) for one in tight] == [(12, True), (4, True)]
    few = list(passes(rows[:3], 16_384, holding(400)))
    assert [(len(one.rows), one.recompute) for one in few] == [(3, False)]


def test_long_rows_are_recomputed_and_short_ones_in_the_same_pack_are_not() -> None:
    rows = [Row(0, 0, 1500), *(Row(0, place, 100) for place in range(1, 9))]
    made = list(passes(rows, 16_384, holding(900)))
    assert [(len(one.rows), one.recompute) for one in made] == [(1, True), (8, False)]


def test_packs_leave_every_row_its_room() -> None:
    portions = [Portion(1, 40, 10), Portion(1, 40, 30), Portion(1, 10, 90), Portion(1, 500, 500)]
    assert list(packs(portions, 100, 110)) == [[0, 1], [2], [3]]


@given(st.lists(words, max_size=3), st.integers(1, 60))
@example([[bytes(4)] * 13 + [bytes(8)] * 5], 1)
def test_a_plan_fits_into_memory_unless_a_row_alone_does_not(batches: list[list[bytes]], room: int) -> None:
    texts = named(batches)
    made = list(plan(list(texts), texts, 1000, holding(room)))
    assert sorted((row.batch, row.place) for one in made for row in one.rows) == [(r.batch, r.place) for r in texts]
    assert all(len(one.rows) == 1 or holding(room)(load_of(one, texts), one.recompute) for one in made)


def test_a_family_beyond_memory_is_recomputed_while_small_and_cut_while_large() -> None:
    small = named([group(64, [64] * 8)])
    assert [(one.folded, one.recompute) for one in plan(list(small), small, 16_384, holding(200))] == [(True, True)]
    large = named([group(512, [512] * 8)])
    made = list(plan(list(large), large, 16_384, holding(2600)))
    assert [(len(one.rows), one.folded, one.recompute) for one in made] == [(4, True, False)] * 2


def test_what_a_folded_pass_runs_is_counted_once() -> None:
    texts = named([group(64, [32] * 4), group(0, [10])])
    assert load_of(Pass(list(texts), folded=True), texts) == Load(
        rows=5, longest=96, tokens=64 + 4 * 32 + 10, targets=394
    )
    assert load_of(Pass(list(texts)), texts) == Load(rows=5, longest=96, tokens=5 * 96)


def test_a_pass_is_split_by_batches_then_rows_then_recomputed_then_given_up() -> None:
    rows = [Row(batch, place, 8) for batch in range(3) for place in range(2)]
    first, second = halves(Pass(rows, folded=True), train=True)
    assert first == Pass(rows[:2], folded=True) and second == Pass(rows[2:], folded=True)
    assert halves(first, train=True) == [Pass([row]) for row in rows[:2]]
    assert halves(Pass(rows[:1]), train=True) == [Pass(rows[:1], recompute=True)]
    assert halves(Pass(rows[:1], recompute=True), train=True) == [] == halves(Pass(rows[:1]), train=False)
