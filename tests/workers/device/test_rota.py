from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from workers.device.rota import SHARES, Rota

Batch = tuple[str, str, int, int]  #: tenant, run, tokens, number

#: Tenants of up to three runs each, with batches of up to three packs.
batches = st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from("xyz"), st.integers(0, 300)), max_size=40)


def rota_of(*batches: tuple[str, str, int], pack_tokens: int = 100) -> Rota[Batch]:
    rota: Rota[Batch] = Rota(pack_tokens)
    for number, batch in enumerate(batches):
        add(rota, batch, number)
    return rota


def add(rota: Rota[Batch], batch: tuple[str, str, int], number: int = 0) -> None:
    tenant, run, tokens = batch
    rota.add((*batch, number), tenant=tenant, run=f"{tenant}/{run}", tokens=tokens)


def packs(rota: Rota[Batch]) -> list[list[Batch]]:
    made = []
    while rota:
        made.append(rota.next_pack())
    return made


@given(batches)
def test_everything_goes_once_within_the_budget_and_in_its_runs_order(asked: list[tuple[str, str, int]]) -> None:
    made = packs(rota_of(*asked))
    assert all(pack for pack in made)
    assert all(len(pack) == 1 or sum(batch[2] for batch in pack) <= 100 for pack in made)
    gone = [batch for pack in made for batch in pack]
    assert sorted(batch[3] for batch in gone) == list(range(len(asked)))
    for owner in {batch[:2] for batch in gone}:
        numbers = [batch[3] for batch in gone if batch[:2] == owner]
        assert numbers == sorted(numbers)


@given(batches)
def test_a_pack_is_not_left_half_empty_while_somebodys_turn_would_fit(asked: list[tuple[str, str, int]]) -> None:
    rota = rota_of(*asked)
    while rota:
        pack = rota.next_pack()
        left = 100 - sum(batch[2] for batch in pack)
        asides = rota._rotation._tenants._aside.values()
        assert not list(rota._rotation._tenants)
        firsts = [line.items[0] for tenant in asides if (line := tenant.lines.first()) is not None]
        assert all(entry.tokens > left for entry in firsts)


@given(batches, st.data())
def test_packs_that_end_early_take_everything_in_the_same_order(
    asked: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    small = [(tenant, run, tokens % 100) for tenant, run, tokens in asked]
    whole = [batch for pack in packs(rota_of(*small, pack_tokens=10_000)) for batch in pack]
    rota: Rota[Batch] = Rota(10_000, lambda tokens, batches: data.draw(st.booleans()))
    for number, batch in enumerate(small):
        add(rota, batch, number)
    early = packs(rota)
    assert all(early)
    assert [batch for pack in early for batch in pack] == whole


def test_a_pack_ends_where_it_is_large_enough() -> None:
    rota: Rota[Batch] = Rota(1000, lambda tokens, batches: tokens >= 30 or batches >= 4)
    for number, batch in enumerate([("A", "x", 10)] * 3 + [("A", "x", 80)] + [("B", "x", 2)] * 5):
        add(rota, batch, number)
    made = packs(rota)
    assert all(sum(batch[2] for batch in pack[:-1]) < 30 and len(pack) <= 4 for pack in made)
    assert sum(map(len, made)) == 9


def test_tenants_get_the_same_tokens_where_packs_end_early_too() -> None:
    rota: Rota[Batch] = Rota(100, lambda tokens, batches: tokens > 20)
    for number in range(60):
        add(rota, ("big", f"run{number % 2}", 90), number)
    for number in range(900):
        add(rota, ("small", f"run{number % 40}", 7), number)
    tokens = Counter[str]()
    for _ in range(90):
        for tenant, _, size, _ in rota.next_pack():
            tokens[tenant] += size
    assert 0.8 < tokens["big"] / tokens["small"] < 1.25


def test_small_batches_share_one_pack() -> None:
    rota = rota_of(*((tenant, "x", 10) for tenant in "ABCDEFGH"))
    assert [len(pack) for pack in packs(rota)] == [8]


def test_a_batch_larger_than_the_budget_runs_alone() -> None:
    made = packs(rota_of(("A", "x", 10), ("B", "x", 250), ("C", "x", 10)))
    assert [[batch[0] for batch in pack] for pack in made] == [["A", "C"], ["B"]]


def test_many_huge_batches_delay_another_tenants_small_one_by_one_pack_at_most() -> None:
    rota = rota_of(*(("flood", f"run{number}", 100) for number in range(50)))
    for _ in range(3):
        rota.next_pack()
    add(rota, ("small", "x", 5))
    assert "small" in [batch[0] for _ in range(2) for batch in rota.next_pack()]


def test_many_huge_batches_of_one_run_delay_the_tenants_other_runs_by_one_pack_at_most() -> None:
    rota = rota_of(*(("A", "flood", 100) for _ in range(50)))
    rota.next_pack()
    add(rota, ("A", "small", 5))
    assert "small" in [batch[1] for _ in range(2) for batch in rota.next_pack()]


def test_many_small_batches_do_not_starve_a_huge_one() -> None:
    rota = rota_of(("huge", "x", 300), *(("small", f"run{number}", 10) for number in range(400)))
    made = packs(rota)
    place = next(number for number, pack in enumerate(made) if pack[0][0] == "huge")
    assert place <= 3 + SHARES  # by then the others had as many tokens


def test_what_did_not_fit_goes_first_in_the_next_pack() -> None:
    rota = rota_of(("A", "x", 60), ("B", "x", 60))
    assert [batch[0] for batch in rota.next_pack()] == ["A"]
    for number in range(20):
        add(rota, ("C", f"run{number}", 10))
    assert [batch[0] for batch in rota.next_pack()] == ["B", "C", "C", "C", "C"]


def test_tenants_get_the_same_tokens_whatever_the_size_and_number_of_their_batches() -> None:
    big = [("big", f"run{number % 2}", 90) for number in range(60)]
    small = [("small", f"run{number % 40}", 7) for number in range(800)]
    rota, tokens = rota_of(*big, *small), Counter[str]()
    for _ in range(50):
        for tenant, _, size, _ in rota.next_pack():
            tokens[tenant] += size
    assert 0.8 < tokens["big"] / tokens["small"] < 1.25


def test_clearing_hands_everything_out() -> None:
    rota = rota_of(("A", "x", 60), ("B", "x", 60))
    assert len(rota) == 2
    assert len(rota.clear()) == 2
    assert not rota
    assert rota.next_pack() == []
