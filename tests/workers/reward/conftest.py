import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path

from scoring import held, nursery_of

from openrl.domain.outcome import Scores
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.nursery import Nursery
from workers.reward.sandbox.walls import strongest
from workers.reward.work import RewardWork

Score = Callable[..., Scores]


@pytest.fixture(scope="session")
def nurseries() -> Iterator[Callable[[Level], Nursery]]:
    """One of each level, made when it is first wanted."""
    made: dict[Level, Nursery] = {}

    def of(level: Level) -> Nursery:
        if level not in made:
            made[level] = nursery_of(level)
        return made[level]

    yield of
    for nursery in made.values():
        nursery.close()


@pytest.fixture(params=[Level.STRONG, Level.KERNEL])
def nursery(request: pytest.FixtureRequest, nurseries: Callable[[Level], Nursery]) -> Nursery:
    """At every level that promises what is tested."""
    return nurseries(request.param)


@pytest.fixture
def any_nursery(nurseries: Callable[[Level], Nursery]) -> Nursery:
    """At the strongest level of this machine."""
    return nurseries(strongest())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Source is run at level strong only, so there is nothing to be tried at others."""
    items[:] = [item for item in items if not {Level.KERNEL, "source"} <= set(_params_of(item))]


def _params_of(item: pytest.Item) -> list[Any]:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return [params.get(name) for name in ("nursery", "attack")]


@pytest.fixture
def work(any_nursery: Nursery) -> Iterator[RewardWork]:
    work = RewardWork(any_nursery, max_attempts=3)
    yield work
    work.close()


@pytest.fixture
def score(work: RewardWork) -> Score:
    """Scores texts of one op, as a worker does."""

    def score(*arguments: Any, **params: Any) -> Scores:
        return work(held(*arguments, **params))

    return score
