import asyncio
import shutil
from pathlib import Path

import optuna
import pytest
from autoresearch.config import Place, Research, load
from autoresearch.proposers.search import Search
from autoresearch.store import Attempt, Run
from autoresearch.target import as_words
from optuna.trial import TrialState
from researching import SPACE, Folder

MORE = (
    SPACE
    + """
[space.group-size]
type = "int"
low = 4
high = 16
step = 4
default = 8

[space.loss]
type = "choice"
choices = ["ppo", "cispo"]
default = "ppo"

[space.fold]
type = "choice"
choices = [true, false]
default = true
"""
)


class Table:
    def __init__(self, research: Research, database: Path) -> None:
        self.research, self.database = research, database
        self.known: list[Attempt] = []

    def search(self) -> Search:
        return Search(self.research, "base", self.database, self.known)

    def propose(self, search: Search, number: int) -> Attempt:
        parent = None if number == 0 else Attempt(number=0, began=0)
        attempt = Attempt(number=number, parent=None if number == 0 else 0, began=0)
        proposal = asyncio.run(search.propose(attempt, parent))
        assert proposal.commit == "base"
        attempt.options, attempt.state = proposal.options, "proposed"
        self.known.append(attempt)
        return attempt

    def states(self) -> list[tuple[TrialState, float | None]]:
        study = optuna.load_study(study_name="research", storage=f"sqlite:///{self.database}")
        return [(trial.state, trial.value) for trial in study.get_trials(deepcopy=False)]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without a study: to make one takes Optuna a second."""
    database = tmp_path_factory.mktemp("optuna") / "optuna.db"
    optuna.storages.RDBStorage(f"sqlite:///{database}")
    return database


@pytest.fixture
def table(folder: Folder, tmp_path: Path, empty: Path) -> Table:
    return Table(load(Place.of(folder(more=MORE))), Path(shutil.copy(empty, tmp_path)))


def ended(attempt: Attempt, metric: float | None) -> Attempt:
    attempt.state = "ended"
    if metric is None:
        attempt.outcome = "crashed"
    else:
        attempt.runs = [Run(seed=0, metric=metric, seconds=1)]
    return attempt


def test_attempt_0_has_the_defaults_and_others_lie_in_the_space(table: Table) -> None:
    search = table.search()
    assert table.propose(search, 0).options == {"lr": 0.1, "group-size": 8, "loss": "ppo", "fold": True}
    for number in range(1, 5):
        options = table.propose(search, number).options
        assert 0.01 <= float(options["lr"]) <= 1 and options["group-size"] in (4, 8, 12, 16)
        assert options["loss"] in ("ppo", "cispo") and isinstance(options["fold"], bool)


def test_settings_that_are_out_at_once_differ(table: Table) -> None:
    search = table.search()
    assert len({table.propose(search, number).options["lr"] for number in range(1, 6)}) == 5


def test_what_an_attempt_came_to_is_told_once_and_survives_a_restart(table: Table) -> None:
    search = table.search()
    attempts = [table.propose(search, number) for number in range(3)]
    for attempt, metric in zip(attempts, (0.5, 0.7, None), strict=True):
        search.learn(ended(attempt, metric))
    again = table.search()
    for attempt in attempts:
        again.learn(attempt)
    told = [(TrialState.COMPLETE, 0.5), (TrialState.COMPLETE, 0.7), (TrialState.FAIL, None)]
    assert sorted(table.states(), key=str) == sorted(told, key=str)


def test_a_trial_that_is_out_stays_out_over_a_restart(table: Table) -> None:
    attempt = table.propose(table.search(), 1)
    again = table.search()
    assert table.states() == [(TrialState.RUNNING, None)]
    again.learn(ended(attempt, 0.7))
    assert table.states() == [(TrialState.COMPLETE, 0.7)]


def test_a_trial_whose_attempt_was_lost_with_the_harness_is_told_as_failed(table: Table) -> None:
    table.propose(table.search(), 1)
    table.known.clear()
    table.search()
    assert table.states() == [(TrialState.FAIL, None)]


def test_one_that_was_lost_and_begins_anew_is_told_of_its_new_trial(table: Table) -> None:
    table.propose(table.search(), 1)
    table.known.clear()
    search = table.search()
    search.learn(ended(table.propose(search, 1), 0.7))
    assert table.states() == [(TrialState.FAIL, None), (TrialState.COMPLETE, 0.7)]


def test_after_a_restart_other_settings_are_drawn(table: Table) -> None:
    first = table.propose(table.search(), 1)
    assert table.propose(table.search(), 2).options["lr"] != first.options["lr"]


def test_options_become_words_of_the_command() -> None:
    options = {"lr": 0.0003, "n": 4, "loss": "ppo", "fold": True, "sort": False}
    assert as_words(options) == ["--lr", "0.0003", "--n", "4", "--loss", "ppo", "--fold", "--no-sort"]
