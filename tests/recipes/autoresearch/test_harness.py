"""The harness with a target and a proposer of the test's own: what it decides, not what it starts."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from autoresearch import starting
from autoresearch.config import Place, Research, load
from autoresearch.errors import Crashed, Refused, ResearchError
from autoresearch.harness import Harness, best_of
from autoresearch.proposers import Proposal
from autoresearch.store import Attempt, Record, Run
from researching import SPACE, TOML, Folder

BASE = "0" * 40


class Table:
    """A target that looks scores up: `scores[attempt]`, a little more with each seed. Notes what was run."""

    def __init__(self, scores: dict[int, float | str], slow: frozenset[int] = frozenset()) -> None:
        self.scores, self.slow = scores, slow
        self.ran: list[tuple[int, int, int]] = []
        self.at_work = self.most = 0

    async def run(self, attempt: Attempt, seed: int, problems: int, seconds: float) -> Run:
        self.ran.append((attempt.number, seed, problems))
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        for _ in range(20 if attempt.number in self.slow else 1):
            await asyncio.sleep(0)
        self.at_work -= 1
        score = self.scores.get(attempt.number, 0.5)
        if isinstance(score, str):
            raise Crashed(score)
        wiggle = (0.01, -0.01, 0.005)[seed % 3] * (attempt.number + 1)
        return Run(seed=seed, metric=score + wiggle, seconds=1.0)


class Numbers:
    """Proposes the attempt's number. Notes what it was told."""

    def __init__(self, refused: frozenset[int] = frozenset()) -> None:
        self.refused = refused
        self.asked: list[tuple[int, int | None]] = []
        self.learned: list[int] = []

    async def propose(self, attempt: Attempt, parent: Attempt | None) -> Proposal:
        self.asked.append((attempt.number, None if parent is None else parent.number))
        if attempt.number in self.refused:
            raise Refused("it edited what it may not")
        return Proposal(BASE, {"n": attempt.number})

    def learn(self, attempt: Attempt) -> None:
        self.learned.append(attempt.number)


class NoWorktrees:
    def diff(self, base: str, commit: str) -> str:
        return ""

    def edits(self, base: str, commit: str) -> list[str]:
        return []


Make = Callable[..., Harness]
AGENT = '\n[agent]\ncommand = ["agent"]\n'


@pytest.fixture
def make(folder: Folder, tmp_path: Path) -> Make:
    def harness(target: Table, proposer: Numbers | None = None, more: str = SPACE, **budget: int) -> Harness:
        place = tmp_path / "research"
        toml = TOML.replace('problems = "problems.json"\n', "").replace("seeds = 2", "seeds = 3")
        research = load(Place.of(place if place.exists() else folder(more=more, toml=toml)))
        research = with_budget(research, **budget)
        record = Record(tmp_path / "record")
        if not record.facts():
            record.save_facts({"base": BASE, "starts": []})
        return Harness(research, record, NoWorktrees(), proposer or Numbers(), target, lambda *_: None)  # type: ignore[arg-type]

    return harness


def with_budget(research: Research, **budget: int) -> Research:
    return research.model_copy(update={"budget": research.budget.model_copy(update=budget)})


def outcomes(harness: Harness) -> dict[int, str | None]:
    return {number: attempt.outcome for number, attempt in sorted(harness.attempts.items())}


def test_what_is_surely_better_is_kept_and_the_rest_dropped(make: Make) -> None:
    harness = make(Table({0: 0.5, 1: 0.9, 2: 0.4, 3: 0.502}), attempts=3)
    asyncio.run(harness.search())
    assert outcomes(harness) == {0: "kept", 1: "kept", 2: "dropped", 3: "dropped"}
    assert "better than 0: +0.4" in harness.attempts[1].reason and "paired t-test" in harness.attempts[1].reason
    assert harness.record.attempts() == list(harness.attempts.values())


def test_as_many_run_at_once_as_the_budget_says(make: Make) -> None:
    target = Table({}, slow=frozenset(range(9)))
    harness = make(target, attempts=8, at_once=3)
    asyncio.run(harness.search())
    assert target.most == 3
    assert sorted(target.ran) == [(number, seed, 0) for number in range(9) for seed in range(3)]


def test_a_crash_ends_its_attempt_only_and_its_other_seeds_are_not_run(make: Make) -> None:
    target, proposer = Table({2: "out of memory"}), Numbers(refused=frozenset({3}))
    harness = make(target, proposer, attempts=4)
    asyncio.run(harness.search())
    assert outcomes(harness) == {0: "kept", 1: "dropped", 2: "crashed", 3: "refused", 4: "dropped"}
    assert harness.attempts[2].reason == "out of memory"
    assert [seed for number, seed, _ in target.ran if number == 2] == [0]
    assert 3 not in {number for number, *_ in target.ran}
    assert sorted(proposer.learned) == [0, 1, 2, 3, 4]


def test_an_unchanged_target_that_fails_ends_the_research(make: Make) -> None:
    harness = make(Table({0: "no such file"}, slow=frozenset({1, 2, 3})))
    with pytest.raises(ResearchError, match="the unchanged target fails: no such file"):
        asyncio.run(harness.search())


def test_one_that_ends_before_its_parent_waits_for_it(make: Make) -> None:
    harness = make(Table({0: 0.5, 1: 0.9}, slow=frozenset({0})), attempts=2)
    asyncio.run(harness.search())
    assert outcomes(harness) == {0: "kept", 1: "kept", 2: "dropped"}


def test_an_agent_goes_on_from_the_best_that_was_kept(make: Make) -> None:
    proposer = Numbers()
    harness = make(Table({0: 0.3, 1: 0.5, 2: 0.4, 3: 0.9}), proposer, more=AGENT, attempts=4, at_once=1)
    asyncio.run(harness.search())
    assert proposer.asked == [(0, None), (1, 0), (2, 1), (3, 1), (4, 3)]


def test_a_search_compares_all_with_the_unchanged_target(make: Make) -> None:
    proposer = Numbers()
    harness = make(Table({0: 0.3, 1: 0.5}), proposer, attempts=3, at_once=1)
    asyncio.run(harness.search())
    assert proposer.asked == [(0, None), (1, 0), (2, 0), (3, 0)]


class Killed(BaseException):
    pass


def test_what_ended_is_not_run_again_and_what_was_proposed_goes_on_with_its_missing_seeds(make: Make) -> None:
    """Killed after each run in turn, until it is through: every seed is run once, and every attempt proposed once."""

    class Mortal(Table):
        async def run(self, attempt: Attempt, seed: int, problems: int, seconds: float) -> Run:
            if self.ran:
                raise Killed
            return await super().run(attempt, seed, problems, seconds)

    ran: list[tuple[int, int, int]] = []
    asked: list[int] = []
    for _ in range(20):
        target, proposer = Mortal({0: 0.5, 1: 0.9}), Numbers()
        harness = make(target, proposer, attempts=2, at_once=1)
        try:
            asyncio.run(harness.search())
            ended = True
        except (Killed, BaseExceptionGroup):
            ended = False
        ran += target.ran
        asked += [number for number, _ in proposer.asked]
        if ended:
            break
    assert ran == [(number, seed, 0) for number in range(3) for seed in range(3)]
    assert asked == [0, 1, 2]
    assert outcomes(harness) == {0: "kept", 1: "kept", 2: "dropped"}


def test_one_that_was_not_proposed_yet_begins_anew(make: Make) -> None:
    harness = make(Table({}), attempts=2)
    harness.record.save(Attempt(number=0, began=0.0))
    harness.record.save(Attempt(number=1, parent=0, began=0.0))
    asyncio.run(harness.search())
    assert set(outcomes(harness).values()) == {"kept", "dropped"} and len(harness.attempts) == 3


def test_more_attempts_are_added_to_a_record(make: Make) -> None:
    asyncio.run(make(Table({}), attempts=2).search())
    target = Table({})
    harness = make(target, attempts=4)
    asyncio.run(harness.search())
    assert {number for number, *_ in target.ran} == {3, 4} and len(harness.attempts) == 5


def test_the_time_left_is_that_of_the_attempt_and_not_of_each_seed(make: Make) -> None:
    given: list[float] = []

    class Clock(Table):
        async def run(self, attempt: Attempt, seed: int, problems: int, seconds: float) -> Run:
            given.append(seconds)
            return (await super().run(attempt, seed, problems, seconds)).model_copy(update={"seconds": 8.0})

    asyncio.run(make(Clock({}), attempts=1, at_once=1).search())
    assert given == [20, 12, 4, 20, 12, 4]


# --- the winner -------------------------------------------------------------------------------------------------------


def test_the_winner_is_confirmed_on_seeds_and_problems_that_chose_nothing(make: Make) -> None:
    target = Table({0: 0.5, 1: 0.6, 2: 0.9})
    harness = make(target, attempts=2, confirm_seeds=4)
    asyncio.run(starting.carry_out(harness))
    confirming = [run for run in target.ran if run[2] == 1]
    assert sorted(confirming) == [(number, seed, 1) for number in (0, 2) for seed in range(3, 7)]
    found = harness.record.confirmation()
    assert found is not None and found.winner == 2 and found.comparison is not None
    assert found.comparison.p < 0.05 and found.comparison.gain == pytest.approx(0.4, abs=0.05)
    [start] = harness.record.facts()["starts"]
    assert start["began"] <= start["searched"] <= start["ended"] <= time.time()


def test_a_confirmation_that_was_cut_off_goes_on(make: Make) -> None:
    class Mortal(Table):
        async def run(self, attempt: Attempt, seed: int, problems: int, seconds: float) -> Run:
            if problems == 1 and sum(ran[2] for ran in self.ran) == 3:
                raise Killed
            return await super().run(attempt, seed, problems, seconds)

    scores: dict[int, float | str] = {0: 0.5, 1: 0.9}
    with pytest.raises((Killed, BaseExceptionGroup)):
        asyncio.run(starting.carry_out(make(Mortal(scores), attempts=1, at_once=1, confirm_seeds=3)))
    target = Table(scores)
    asyncio.run(starting.carry_out(make(target, attempts=1, at_once=1, confirm_seeds=3)))
    assert target.ran == [(1, 4, 1), (0, 5, 1), (1, 5, 1)]


def test_nothing_is_confirmed_where_nothing_is_better(make: Make) -> None:
    target = Table({0: 0.9})
    harness = make(target, attempts=2, confirm_seeds=3)
    asyncio.run(starting.carry_out(harness))
    assert harness.record.confirmation() is None and all(problems == 0 for *_, problems in target.ran)


def attempt(number: int, metric: float, outcome: str) -> Attempt:
    run = Run(seed=0, metric=metric, seconds=1)
    return Attempt(number=number, began=0, runs=[run], state="ended", outcome=outcome)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "best"), [("max", 3), ("min", None)])
def test_the_winner_is_among_those_that_were_kept(mode: str, best: int | None) -> None:
    all_of_them = [
        attempt(0, 0.5, "kept"),
        attempt(1, 0.95, "dropped"),
        attempt(2, 0.6, "kept"),
        attempt(3, 0.7, "kept"),
    ]
    found = best_of({one.number: one for one in all_of_them}, mode)  # type: ignore[arg-type]
    assert (found.number if found else None) == best


def test_where_none_was_kept_the_best_of_all_may_yet_prove_itself() -> None:
    all_of_them = [attempt(0, 0.5, "kept"), attempt(1, 0.6, "dropped"), attempt(2, 0.9, "crashed")]
    found = best_of({one.number: one for one in all_of_them}, "max")
    assert found is not None and found.number == 1
