from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from workers.rotation import REMEMBERED, Rotation

Item = tuple[str, str, int, int]  #: tenant, owner, cost, number

items = st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from("xyz"), st.integers(1, 300)), max_size=40)


def rotation_of(*asked: tuple[str, str, int], quantum: int = 10, over: set[int] | None = None) -> Rotation[Item]:
    rotation: Rotation[Item] = Rotation(quantum, over=lambda item: item[3] in (over or set()))
    for number, item in enumerate(asked):
        add(rotation, item, number)
    return rotation


def add(rotation: Rotation[Item], item: tuple[str, str, int], number: int = 0) -> None:
    rotation.add((*item, number), tenant=item[0], owner=item[1])


def take(rotation: Rotation[Item], count: int = 10_000) -> list[Item]:
    taken: list[Item] = []
    while len(taken) < count and (item := rotation.first()) is not None:
        rotation.charge(item[2], gone=True)
        taken.append(item)
    return taken


@given(items)
def test_everything_goes_once_in_the_order_of_its_owner(asked: list[tuple[str, str, int]]) -> None:
    gone = take(rotation_of(*asked))
    assert sorted(item[3] for item in gone) == list(range(len(asked)))
    for owner in {item[:2] for item in gone}:
        numbers = [item[3] for item in gone if item[:2] == owner]
        assert numbers == sorted(numbers)


@given(items, st.data())
def test_while_all_wait_nobody_is_ahead_by_more_than_a_quantum_and_an_item(
    asked: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    rotation, left = rotation_of(*asked), Counter(item[0] for item in asked)
    had = Counter[str]()
    while len(left) == 3 and min(left.values()) > 0:
        (item,) = take(rotation, 1)
        had[item[0]] += item[2]
        left[item[0]] -= 1
        assert max(had.values()) - min(had[tenant] for tenant in "ABC") <= 10 + 300


def test_who_comes_new_goes_first_whatever_it_costs_and_pays_later() -> None:
    rotation = rotation_of(*(("flood", "x", 10) for _ in range(100)))
    take(rotation, 5)
    for number in range(2):
        add(rotation, ("small", "x", 100), number)
    gone = [item[0] for item in take(rotation, 15)]
    assert gone[0] == "small"
    assert 8 <= gone.index("small", 1) <= 11


def test_a_new_owner_of_a_tenant_goes_before_its_others() -> None:
    rotation = rotation_of(*(("A", "flood", 10) for _ in range(100)))
    take(rotation, 5)
    add(rotation, ("A", "small", 100))
    assert take(rotation, 1)[0][1] == "small"


def test_who_comes_back_is_not_new_before_the_others_had_their_turns() -> None:
    rotation = rotation_of(*(("flood", "x", 10) for _ in range(100)))
    gone = []
    for number in range(40):
        if number % 2 == 0:
            add(rotation, ("again", "x", 50))
        gone += take(rotation, 1)
    cost = Counter[str]()
    for item in gone:
        cost[item[0]] += item[2]
    assert cost["again"] <= cost["flood"] + 50 + 10


def test_who_is_passed_over_waits_until_the_next_round_with_all_that_is_theirs() -> None:
    rotation = rotation_of(("A", "x", 1), ("A", "y", 1), ("B", "x", 1))
    assert rotation.first() == ("A", "x", 1, 0)
    rotation.pass_over()
    assert take(rotation) == [("B", "x", 1, 2)]
    rotation.new_round()
    assert [item[0] for item in take(rotation)] == ["A", "A"]


def test_a_line_that_is_passed_over_waits_alone_and_is_first_in_the_next_round() -> None:
    rotation = rotation_of(("A", "x", 1), ("A", "y", 1), ("B", "x", 1), ("A", "x", 1))
    assert rotation.first() == ("A", "x", 1, 0)
    rotation.pass_over_owner()
    assert [item[3] for item in take(rotation)] == [1, 2]
    rotation.new_round()
    assert [item[3] for item in take(rotation)] == [0, 3]


def test_a_tenant_all_of_whose_lines_are_passed_over_keeps_nobody_waiting_and_loses_nothing() -> None:
    rotation = rotation_of(("A", "x", 1), ("A", "y", 1), ("B", "x", 1))
    for _ in range(2):
        rotation.pass_over_owner()
    assert [item[3] for item in take(rotation)] == [2]
    for number in range(3, 3 + 2 * REMEMBERED):
        add(rotation, (f"tenant{number}", "x", 100), number)
        take(rotation)
    rotation.new_round()
    assert sorted(item[3] for item in take(rotation)) == [0, 1]


def test_a_part_that_is_charged_leaves_the_item_where_it_is() -> None:
    rotation = rotation_of(("A", "x", 5), ("B", "x", 5), quantum=10)
    served = []
    for _ in range(6):
        item = rotation.first()
        assert item is not None
        served.append(item[0])
        rotation.charge(10, gone=False)
    assert sorted(served) == ["A"] * 3 + ["B"] * 3


def test_what_is_over_is_never_first() -> None:
    over = {0, 2}
    rotation = rotation_of(("A", "x", 1), ("A", "x", 1), ("B", "x", 1), over=over)
    assert [item[3] for item in take(rotation)] == [1]
    assert rotation.first() is None


def test_only_so_many_of_those_who_left_are_remembered() -> None:
    rotation: Rotation[Item] = Rotation(10)
    for number in range(3 * REMEMBERED):
        add(rotation, (f"tenant{number}", "x", 100))
        take(rotation)
    assert len(rotation._tenants._away) <= REMEMBERED
    assert not list(rotation._tenants)


def test_who_was_passed_over_comes_before_who_came_since() -> None:
    rotation: Rotation[str] = Rotation(64)
    rotation.add("large", tenant="a", owner="s")
    rotation.new_round()
    rotation.pass_over()
    rotation.add("small", tenant="b", owner="s")
    assert rotation.first() == "small"
    rotation.new_round()
    assert rotation.first() == "large"
