from dataclasses import replace

from openrl.cli.supervisor import (
    REFUSED,
    Life,
    Phase,
    Rules,
    Verdict,
    born,
    died,
    due,
    in_words,
    ready,
    reborn,
    rest_seconds,
)

RULES = Rules()


def _dies_young(life: Life, times: int, rules: Rules = RULES) -> tuple[Verdict, Life]:
    verdict, now = Verdict.RESTART, life.started_at
    for _ in range(times):
        verdict, life = died(life, 1, now + 1.0, rules)
        now = life.rest_until
        life = reborn(life, now)
    return verdict, life


def test_the_rest_doubles_with_every_death_and_has_a_bound() -> None:
    assert [rest_seconds(deaths, RULES) for deaths in range(1, 8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0]


def test_a_component_that_dies_is_started_again_after_its_rest() -> None:
    verdict, life = died(ready(born(0.0), 2.0), -9, 5.0, RULES)
    assert verdict is Verdict.RESTART
    assert life.phase is Phase.RESTING
    assert not due(life, 5.1)
    assert due(life, 5.2)
    assert reborn(life, 5.2).phase is Phase.STARTING


def test_five_early_deaths_in_a_row_are_hopeless() -> None:
    assert _dies_young(born(0.0), 4)[0] is Verdict.RESTART
    assert _dies_young(born(0.0), 5)[0] is Verdict.HOPELESS


def test_having_been_ready_breaks_the_row_of_early_deaths() -> None:
    _, life = _dies_young(born(0.0), 4)
    life = ready(life, life.started_at + 1)
    verdict, life = died(life, 1, life.started_at + 2, RULES)
    assert verdict is Verdict.RESTART
    assert life.early_deaths == 0


def test_a_late_death_before_it_was_ready_is_no_early_one() -> None:
    _, life = _dies_young(born(0.0), 4)
    verdict, life = died(life, 1, life.started_at + 20.0, RULES)
    assert verdict is Verdict.RESTART
    assert life.early_deaths == 0


def test_a_component_that_was_ready_for_long_rests_shortly_again() -> None:
    _, tired = _dies_young(born(0.0), 4)
    up = ready(tired, tired.started_at)
    quick = died(up, 1, tired.started_at + 1.0, RULES)[1]
    late = died(up, 1, tired.started_at + 60.0, RULES)[1]
    assert (quick.deaths, late.deaths) == (5, 1)


def test_a_refusal_counts_at_once_before_it_was_ever_ready() -> None:
    assert died(born(0.0), REFUSED, 1.0, RULES)[0] is Verdict.REFUSED


def test_a_refusal_after_it_was_ready_is_an_accident() -> None:
    life = replace(ready(born(0.0), 1.0), phase=Phase.STARTING)
    assert died(life, REFUSED, 2.0, RULES)[0] is Verdict.RESTART


def test_a_clean_exit_nobody_asked_for_is_a_death_too() -> None:
    assert died(ready(born(0.0), 1.0), 0, 2.0, RULES)[0] is Verdict.RESTART


def test_how_it_ended_is_told_in_words() -> None:
    assert in_words(-9) == "killed by signal 9"
    assert in_words(3) == "stopped with exit status 3"
