from hypothesis import given
from hypothesis import strategies as st

from workers.model.prefixes import Band, Piece, bands, layout, stems

rows = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(bytes), min_size=1, max_size=9).map(sorted)


@given(rows, st.integers(1, 5))
def test_every_token_of_every_row_is_in_one_stem_that_its_rows_agree_on(rows: list[bytes], least: int) -> None:
    found = list(stems(rows, item=1, least=least))
    for number, row in enumerate(rows):
        mine = [stem for stem in found if stem.first <= number < stem.last]
        assert [column for stem in mine for column in range(stem.left, stem.right)] == list(range(len(row)))
    for stem in found:
        assert len({rows[number][: stem.right] for number in range(stem.first, stem.last)}) == 1
        assert stem.last - stem.first == 1 or stem.tokens * (stem.last - stem.first - 1) >= least


@given(rows)
def test_with_nothing_too_small_no_beginning_is_there_twice(rows: list[bytes]) -> None:
    distinct = {row[:end] for row in rows for end in range(1, len(row) + 1)}
    assert sum(stem.tokens for stem in stems(rows, item=1, least=1)) == len(distinct)


@given(st.lists(rows, min_size=1, max_size=4))
def test_a_layout_puts_every_token_of_every_row_in_one_place(groups: list[list[bytes]]) -> None:
    made = layout(groups, item=1)
    flat = [row for group in groups for row in group]
    assert (made.rows, made.longest) == (len(flat), max(map(len, flat)))
    tokens: dict[int, int] = {}
    seen = [0] * len(flat)
    at = 0
    for piece in made.pieces:
        assert piece.start == at
        at = piece.stop
        width = piece.right - piece.left
        for number in range(piece.first, piece.last):
            skip = 0 if piece.shared else width * (number - piece.first)
            for column in range(width):
                token = flat[number][piece.left + column]
                assert tokens.setdefault(piece.start + skip + column, token) == token
            assert seen[number] == piece.left
            seen[number] = piece.right
    assert seen == [len(row) for row in flat]
    assert made.ends[-1] == at == len(tokens)


def test_a_group_of_completions_is_a_prompt_and_one_block() -> None:
    group = sorted(bytes(range(10)) + bytes([100 + n] * 5) for n in range(4))
    assert layout([group], item=1).pieces == (Piece(0, 0, 4, 0, 10, True), Piece(10, 0, 4, 10, 15, False))


def test_groups_share_nothing_and_small_beginnings_stay_apart() -> None:
    long, short = bytes(range(20)), bytes([1, 2, 9])
    assert layout([[long], [long]], item=1).ends == (20, 40)
    assert layout([[bytes([1, 2, 3]), short]], item=1).ends == (6,)
    assert layout([[long, long]], item=1).ends == (20,)


@given(st.lists(rows, min_size=1, max_size=4))
def test_bands_hold_every_piece_once_and_reach_over_its_rows(groups: list[list[bytes]]) -> None:
    made = layout(groups, item=1)
    found = bands(made)
    assert tuple(piece for band in found for piece in band.pieces) == made.pieces
    for band in found:
        for piece in band.pieces:
            assert band.first <= piece.first < band.last <= made.rows
            assert band.left <= piece.left < piece.right <= band.right


def test_a_long_prompt_attends_once_and_a_short_one_with_every_row() -> None:
    for prompt, shared in ((250, True), (3, False)):
        group = sorted(bytes(prompt) + bytes([100 + n] * (50 + n)) for n in range(8))
        made = layout([group], item=1)
        start, *rest = made.pieces
        wanted = [Band((start,), 0, 1, 0, prompt), Band(tuple(rest), 0, 8, prompt, prompt + 57)]
        whole = [Band(made.pieces, 0, 8, 0, prompt + 57)]
        assert bands(made) == (wanted if shared else whole)
