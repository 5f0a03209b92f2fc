"""The model's code runs in a child of its own, which is told what to call and answers values; what they should be is
known here only, and compared here."""

import math
from typing import Any, Final

from openrl.rewards import FieldInvalid, RewardResult, Words, reward
from workers.reward.execution import Ending, run_python
from workers.reward.functions.fences import inside
from workers.reward.functions.fields import as_json, choice, needed, number

MOST_TESTS: Final = 1_000
_ASKS: Final = ("call", "eval", "stdin")


@reward(version="1", pure=False, executes=True, seconds=5.0, overrun=0.0)
def score(text: str, context: Words, params: Words) -> RewardResult:
    """1 where the code (the last ```python fence, else the text) passes all of `context.tests`, else 0; with
    `params.credit=share` the share that it passes. `params.seconds` (5) is for all of them."""
    tests = _tests(context)
    credit = choice(params, "credit", ("all", "share"))
    seconds = number("params.seconds", params.get("seconds", "5"), least=0.1, most=60)
    calls = [{key: value for key, value in test.items() if key != "expected"} for test in tests]
    ran = run_python(inside(text, "python", "py"), calls, seconds=seconds)
    passed = sum(_passes(test, result) for test, result in zip(tests, ran.results, strict=False))
    share = passed / len(tests)
    value = share if credit == "share" else float(passed == len(tests))
    return RewardResult(
        value,
        parts={"executed": float(ran.ending is Ending.ANSWERED), "passed": share},
        info={"ending": ran.ending, **_first_problem(ran.detail, tests, ran.results)},
    )


def _tests(context: Words) -> list[dict[str, Any]]:
    field = "context.tests"
    tests: list[Any] = as_json(field, needed(context, "tests"), list)
    if not 1 <= len(tests) <= MOST_TESTS:
        raise FieldInvalid(field, f"has {len(tests)} tests; it must have 1 to {MOST_TESTS}")
    scripts = sum(isinstance(test, dict) and "stdin" in test for test in tests)
    if 0 < scripts < len(tests):
        raise FieldInvalid(field, "has tests with `stdin` and others; send one kind")
    for at, test in enumerate(tests):
        _check(f"{field}[{at}]", test)
    return tests


def _check(field: str, test: Any) -> None:
    if not isinstance(test, dict) or "expected" not in test:
        raise FieldInvalid(field, "must be an object with `expected`")
    asks = [key for key in _ASKS if key in test]
    if len(asks) != 1 or not isinstance(test[asks[0]], str):
        raise FieldInvalid(field, "must have one of `call`, `eval` and `stdin`, a string")
    if not isinstance(test.get("args", []), list) or not isinstance(test.get("kwargs", {}), dict):
        raise FieldInvalid(field, "`args` must be a list and `kwargs` an object")
    if asks == ["stdin"] and not isinstance(test["expected"], str):
        raise FieldInvalid(f"{field}.expected", "must be the text that is to be printed")
    if unknown := test.keys() - {"expected", asks[0], "args", "kwargs"}:
        raise FieldInvalid(field, f"has {sorted(unknown)[0]!r}, which means nothing")


def _passes(test: dict[str, Any], result: dict[str, Any]) -> bool:
    if "value" not in result:
        return False
    if "stdin" in test:
        return isinstance(result["value"], str) and _lines(result["value"]) == _lines(test["expected"])
    return _same(result["value"], test["expected"])


def _same(value: Any, expected: Any) -> bool:
    """Equal as JSON; true is no 1, and floats may differ in their last digits."""
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, float) or isinstance(expected, float):
        numbers = isinstance(value, int | float) and isinstance(expected, int | float)
        return numbers and (value == expected or math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-12))
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_same, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_same(value[key], expected[key]) for key in expected)
    return type(value) is type(expected) and bool(value == expected)


def _lines(text: str) -> list[str]:
    """Spaces at the ends of lines, and empty lines at the end, mean nothing."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _first_problem(detail: str, tests: list[dict[str, Any]], results: tuple[dict[str, Any], ...]) -> dict[str, str]:
    if detail:
        return {"error": detail}
    for at, (test, result) in enumerate(zip(tests, results, strict=False)):
        if not _passes(test, result):
            return {"test": str(at), "error": str(result.get("error", "another value than expected"))[:300]}
    return {}
