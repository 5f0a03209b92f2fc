"""The recipe text_to_sql scores replies itself or on the service's reward workers: both must say the same."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import openrl

pytestmark = pytest.mark.live

FOLDER = Path(__file__).parents[3] / "recipes" / "text_to_sql"
NAMES = ("tables", "schemas", "queries", "scene", "intents", "problems", "reward")
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture(scope="module")
def recipe() -> Iterator[SimpleNamespace]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        for name in NAMES:
            sys.modules.pop(name, None)
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
        for name in NAMES:
            del sys.modules[name]


def replies(gold: str) -> list[str]:
    """Right ones, wrong ones, and ones that cannot be run."""
    return [
        gold,
        f"Here it is:\n```sql\n{gold};\n```",
        gold.lower(),
        gold.replace(" DESC", "") if " DESC" in gold else gold.replace("ORDER BY ", "ORDER BY -"),
        gold.replace(" = ", " != ").replace(" > ", " < "),
        gold.replace("SELECT ", "SELECT DISTINCT "),
        f"SELECT * FROM ({gold}) ORDER BY 1",
        f"SELECT * FROM ({gold}) ORDER BY 1 DESC",
        f"{gold} LIMIT 1",
        gold.partition(" FROM ")[0],
        gold.replace("FROM ", "FROM the_"),
        f"{gold}; {gold}",
        f"EXPLAIN {gold}",
        f"DROP TABLE {gold.partition(' FROM ')[2].split()[0]}",
        "PRAGMA query_only = OFF",
        "VACUUM",
        "SELECT",
        "The answer is 3.",
        "",
    ]


def test_the_recipe_and_the_reward_workers_say_the_same(recipe: SimpleNamespace, client: openrl.Client) -> None:
    drawn = recipe.problems.problems(12, 1) + recipe.problems.problems(12, 1, unseen=True)
    asked = [(text, problem) for problem in drawn for text in replies(problem.gold)]
    asked += [(ENDLESS, drawn[0]), ("SELECT hex(zeroblob(9000000))", drawn[0])]
    here = [recipe.reward.score(*one) for one in asked]
    texts, contexts = [text for text, _ in asked], [problem.context() for _, problem in asked]
    there = client.score_in_parts("sql_execution", texts, contexts)
    for (text, problem), local, queued in zip(asked, here, there, strict=True):
        assert (local.match, local.compiles) == (queued.value == 1.0, queued.parts["parsed"] == 1.0), (text, problem)
    assert 60 < sum(score.match for score in here) < len(here) - 60
    assert 60 < sum(score.compiles for score in here) < len(here) - 60
