"""What can be asked of a database, and in which words. Each function makes a question and the query that answers it."""

from collections.abc import Callable

from queries import Query, Test
from scene import FUNCTIONS, Scene, listed, said

Intent = Callable[[Scene], tuple[str, Query]]

# --- rows by a condition ----------------------------------------------------------------------------------------------


def rows_by_one(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    test, select = scene.test(table), scene.wanted(table)
    some, what = scene.some(table, test), listed(table, select)
    question = scene.one(
        f"List the {what} of {some}.",
        f"Show the {what} of all {some}.",
        f"What is the {what} of {some}?",
        f"Find {some} and give the {what}.",
        f"Give me the {what} of {some}.",
    )
    return question, Query(select=select, table=table.name, where=(test,))


def rows_by_two(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    first = scene.test(table, but=(table.label,))
    second, select = scene.test(table, but=(table.label, first.column)), scene.wanted(table, most=1)
    either = scene.rng.random() < 0.3
    both = f"{scene.told(table, first)} {'or' if either else 'and'} {scene.told(table, second)}"
    what = listed(table, select)
    question = scene.one(
        f"List the {what} of {table.nouns} whose {both}.",
        f"Show the {what} of all {table.nouns} where the {both}.",
        f"What is the {what} of the {table.nouns} whose {both}?",
    )
    return question, Query(select=select, table=table.name, where=(first, second), either=either)


# --- numbers, orders, limits ------------------------------------------------------------------------------------------


def count(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    test = scene.test(table, but=(table.label,))
    some = scene.some(table, test)
    question = scene.one(
        f"How many {some} are there?",
        f"Count the {some}.",
        f"What is the number of {some}?",
        f"Give the number of {some}.",
    )
    return question, Query(select=("count(*)",), table=table.name, where=(test,))


def total(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    number, function = scene.rng.choice(table.numbers), scene.one(*FUNCTIONS)
    tests = (scene.test(table, but=(table.label, number)),) if scene.rng.random() < 0.5 else ()
    some = scene.some(table, tests[0]) if tests else scene.one(f"all {table.nouns}", f"the {table.nouns}")
    what = f"{scene.one(*FUNCTIONS[function])} {said(table, number)}"
    question = scene.one(
        f"What is the {what} of {some}?", f"Find the {what} of {some}.", f"Compute the {what} for {some}."
    )
    return question, Query(select=(f"{function}({number})",), table=table.name, where=tests)


def first(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    number, (extreme, top) = scene.rng.choice(table.numbers), scene.extreme()
    select = scene.wanted(table)
    which, what = f"{table.noun} with the {extreme} {said(table, number)}", listed(table, select)
    question = scene.one(
        f"What is the {what} of the {which}?",
        f"Show the {what} of the {which}.",
        f"Find the {which} and give the {what}.",
    )
    return question, Query(select=select, table=table.name, order=number, down=top, limit=1)


def few(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    number, (extreme, top), limit = scene.rng.choice(table.numbers), scene.extreme(), scene.rng.randint(2, 4)
    select = scene.wanted(table, most=1)
    which, what = f"{limit} {table.nouns} with the {extreme} {said(table, number)}", listed(table, select)
    question = scene.one(
        f"List the {what} of the {which}, {extreme} first.",
        f"Show the {what} of the {which}, starting with the {extreme}.",
    )
    return question, Query(select=select, table=table.name, order=number, down=top, limit=limit)


def ordered(scene: Scene) -> tuple[str, Query]:
    table, down = scene.table(), scene.rng.random() < 0.5
    by, select = scene.rng.choice([*table.numbers, table.label]), scene.wanted(table)
    order, what = "descending" if down else "ascending", listed(table, select)
    question = scene.one(
        f"List the {what} of all {table.nouns} in {order} order of {said(table, by)}.",
        f"Show the {what} of every {table.noun}, sorted by {said(table, by)} {order}.",
        f"Give the {what} of all {table.nouns}, ordered by {order} {said(table, by)}.",
    )
    return question, Query(select=select, table=table.name, order=by, down=down)


def different(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    kind = scene.rng.choice(table.kinds)
    if scene.rng.random() < 0.5:
        question = scene.one(
            f"How many different values of {said(table, kind)} do the {table.nouns} have?",
            f"Count the distinct values of {said(table, kind)} among the {table.nouns}.",
        )
        return question, Query(select=(f"count(DISTINCT {kind})",), table=table.name)
    question = scene.one(
        f"List each different {said(table, kind)} of the {table.nouns} once.",
        f"Show the distinct values of {said(table, kind)} among the {table.nouns}.",
    )
    return question, Query(select=(f"DISTINCT {kind}",), table=table.name)


# --- groups -----------------------------------------------------------------------------------------------------------


def group_counts(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    kind = scene.rng.choice(table.kinds)
    tests = (scene.test(table, but=(table.label, kind)),) if scene.rng.random() < 0.25 else ()
    some, what = scene.some(table, tests[0]) if tests else table.nouns, said(table, kind)
    question = scene.one(
        f"Show each {what} with the number of {some}.",
        f"For each {what}, give the {what} and the number of {some}.",
        f"List every {what} and count the {some}.",
        f"Count the {some} for each {what}; show the {what} and the count.",
    )
    return question, Query(select=(kind, "count(*)"), table=table.name, where=tests, group=kind)


def group_totals(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    kind, number, function = scene.rng.choice(table.kinds), scene.rng.choice(table.numbers), scene.one(*FUNCTIONS)
    what, much = said(table, kind), f"{scene.one(*FUNCTIONS[function])} {said(table, number)}"
    question = scene.one(
        f"Show each {what} with the {much} of its {table.nouns}.",
        f"For each {what}, give the {what} and the {much} of the {table.nouns}.",
        f"List every {what} and the {much} of {table.nouns}.",
    )
    return question, Query(select=(kind, f"{function}({number})"), table=table.name, group=kind)


def groups_by_count(scene: Scene) -> tuple[str, Query]:
    table = scene.table()
    kind, sign, least = scene.rng.choice(table.kinds), scene.one(">", ">=", "<"), scene.rng.randint(1, 5)
    many, what = (
        f"{scene.one('more than' if sign == '>' else 'at least' if sign == '>=' else 'fewer than')} {least}",
        said(table, kind),
    )
    question = scene.one(
        f"Which values of {what} have {many} {table.nouns}?",
        f"List each {what} with {many} {table.nouns}.",
        f"Find every {what} that has {many} {table.nouns}.",
    )
    return question, Query(select=(kind,), table=table.name, group=kind, having=Test("count(*)", sign, least))


def top_group(scene: Scene) -> tuple[str, Query]:
    table, most = scene.table(), scene.rng.random() < 0.6
    kind = scene.rng.choice(table.kinds)
    what, many = said(table, kind), f"the {'most' if most else 'fewest'} {table.nouns}"
    question = scene.one(
        f"Which {what} has {many}?", f"Find the {what} with {many}.", f"Show the {what} that has {many}."
    )
    return question, Query(select=(kind,), table=table.name, group=kind, order="count(*)", down=most, limit=1)


# --- joins ------------------------------------------------------------------------------------------------------------


def children_of(scene: Scene) -> tuple[str, Query]:
    parent, child = scene.database.parent, scene.database.child
    test, select = scene.test(parent), scene.wanted(child, most=1)
    what, some = listed(child, select), scene.some(parent, test)
    question = scene.one(
        f"List the {what} of {child.nouns} of {some}.",
        f"Show the {what} of all {child.nouns} that belong to {some}.",
        f"What is the {what} of {child.nouns} whose {parent.noun}'s {scene.told(parent, test)}?",
    )
    return question, Query(select=select, table=scene.joined(), where=(test,))


def both(scene: Scene) -> tuple[str, Query]:
    parent, child = scene.database.parent, scene.database.child
    test = scene.test(child, but=(child.label,))
    own, others = scene.wanted(child, most=1)[0], scene.wanted(parent, most=1)[0]
    some = scene.some(child, test)
    what = f"{said(child, own)} and the {parent.noun}'s {said(parent, others)}"
    question = scene.one(f"List the {what} of {some}.", f"Show the {what} for {some}.", f"For {some}, give the {what}.")
    return question, Query(select=(own, others), table=scene.joined(), where=(test,))


def count_of(scene: Scene) -> tuple[str, Query]:
    parent, child = scene.database.parent, scene.database.child
    test = scene.test(parent)
    some = scene.some(parent, test)
    question = scene.one(
        f"How many {child.nouns} belong to {some}?",
        f"Count the {child.nouns} of {some}.",
        f"What is the number of {child.nouns} of {some}?",
    )
    return question, Query(select=("count(*)",), table=scene.joined(), where=(test,))


def total_of(scene: Scene) -> tuple[str, Query]:
    parent, child = scene.database.parent, scene.database.child
    number, function, test = scene.rng.choice(child.numbers), scene.one(*FUNCTIONS), scene.test(parent)
    what, some = f"{scene.one(*FUNCTIONS[function])} {said(child, number)}", scene.some(parent, test)
    question = scene.one(
        f"What is the {what} of {child.nouns} of {some}?",
        f"Find the {what} of the {child.nouns} that belong to {some}.",
    )
    return question, Query(select=(f"{function}({number})",), table=scene.joined(), where=(test,))


def counts_by_parent(scene: Scene) -> tuple[str, Query]:
    parent, child = scene.database.parent, scene.database.child
    what = said(parent, parent.label)
    question = scene.one(
        f"Show the {what} of each {parent.noun} with the number of {child.nouns}.",
        f"For each {parent.noun}, give the {what} and the number of {child.nouns}.",
        f"List every {parent.noun}'s {what} and count the {child.nouns}.",
    )
    return question, Query(select=(parent.label, "count(*)"), table=scene.joined(), group=parent.label)


def parent_of_first(scene: Scene) -> tuple[str, Query]:
    parent, child = scene.database.parent, scene.database.child
    number, (extreme, top), select = scene.rng.choice(child.numbers), scene.extreme(), scene.wanted(parent, most=1)
    what, which = listed(parent, select), f"{child.noun} with the {extreme} {said(child, number)}"
    question = scene.one(
        f"What is the {what} of the {parent.noun} of the {which}?",
        f"Show the {parent.noun}'s {what} for the {which}.",
        f"Find the {which} and give the {what} of its {parent.noun}.",
    )
    return question, Query(select=select, table=scene.joined(), order=number, down=top, limit=1)


LEVELS: dict[int, tuple[Intent, ...]] = {
    1: (rows_by_one, rows_by_one, rows_by_two),
    2: (count, total, first, few, ordered, different),
    3: (group_counts, group_totals, groups_by_count, top_group),
    4: (children_of, both, count_of, total_of, counts_by_parent, parent_of_first),
}
