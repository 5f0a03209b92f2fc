from typing import Any

import pytest

from openrl.domain.errors import FieldInvalid

SQUARE = [{"call": "square", "args": [3], "expected": 9}, {"eval": "square(-4) + 1", "expected": 17}]
RIGHT = "def square(x):\n    return x * x"


def test_code_is_right_where_all_tests_pass(score: Any) -> None:
    half = "def square(x):\n    return 9"
    answers = (RIGHT, f"Here:\n```python\n{RIGHT}\n```\nDone.", half, "def square(x): return", "def square(x:", "")
    scores = score("python_tests", answers, [{"tests": SQUARE}] * 6)
    assert scores.values == (1.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    assert [parts["passed"] for parts in scores.parts] == [1.0, 1.0, 0.5, 0.0, 0.0, 0.0]
    assert scores.info[2] == {"ending": "answered", "test": "1", "error": "another value than expected"}
    assert scores.info[4]["error"].startswith("SyntaxError")
    assert score("python_tests", [half], [{"tests": SQUARE}], credit="share").values == (0.5,)


def test_programs_are_tested_by_what_they_print(score: Any) -> None:
    tests = [{"stdin": "2 3\n", "expected": "5\n"}, {"stdin": "10 -1", "expected": "9"}]
    adds = "a, b = map(int, input().split())\nif __name__ == '__main__':\n    print(a + b)"
    exits = f"{adds}\nimport sys\nsys.exit()"
    fails = f"{adds}\nraise SystemExit(1)"
    scores = score("python_tests", [adds, exits, fails, "print(5)"], [{"tests": tests}] * 4)
    assert scores.values == (1.0, 1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "code",
    [
        "print(sum(map(int, open(0).read().split())))",
        "import sys\nsys.stdout.buffer.write(b'%d' % sum(map(int, sys.stdin.buffer.read().split())))",
        "import sys\nfor line in sys.stdin:\n    sys.stdout.write(str(sum(map(int, line.split()))))",
        "import os\nprint(sum(map(int, os.read(0, 99).split())), flush=True)",
    ],
)
def test_programs_may_read_and_write_as_they_like(score: Any, code: str) -> None:
    tests = [{"stdin": "2 3\n", "expected": "5\n"}, {"stdin": "10 -1", "expected": "9"}]
    assert score("python_tests", [code], [{"tests": tests}]).values == (1.0,)


def test_classes_find_their_module(score: Any) -> None:
    code = """
from __future__ import annotations
from dataclasses import asdict, dataclass
@dataclass
class Point:
    x: int
    y: int = 2
"""
    assert score(
        "python_tests", [code], [{"tests": [{"eval": "asdict(Point(1))", "expected": {"x": 1, "y": 2}}]}]
    ).values == (1.0,)
    program = f"{code}\nprint(asdict(Point(int(input()))))"
    tests = [{"stdin": "1", "expected": "{'x': 1, 'y': 2}"}]
    assert score("python_tests", [program], [{"tests": tests}]).values == (1.0,)


@pytest.mark.parametrize(
    ("returned", "expected", "same"),
    [
        ("(1, 2)", [1, 2], True),
        ("{'a': [1.0]}", {"a": [1]}, True),
        ("0.1 + 0.2", 0.3, True),
        ("True", 1, False),
        ("1", True, False),
        ("'1'", 1, False),
        ("None", None, True),
        ("[1, 2, 3]", [1, 2], False),
        ("{1, 2}", [1, 2], False),
        ("float('nan')", 0.0, False),
    ],
)
def test_values_are_compared_as_json(score: Any, returned: str, expected: Any, same: bool) -> None:
    tests = [{"call": "f", "expected": expected}]
    assert score("python_tests", [f"def f(): return {returned}"], [{"tests": tests}]).values == (float(same),)


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "raise SystemExit",
        "print('{\"results\": [{\"value\": 9}]}')\nprint('2 passed')",
        "class Yes:\n    def __eq__(self, other): return True\ndef square(x): return Yes()",
        "class Yes(int):\n    def __eq__(self, other): return True\ndef square(x): return Yes(1)",
        "class Yes(dict): pass\ndef square(x): return Yes(value=9)",
        "import builtins\nbuiltins.all = builtins.bool = builtins.sum = lambda *_: True\ndef square(x): return 1",
        "import json\njson.dumps = lambda *_: '{\"value\": 9}'\ndef square(x): return 1",
        "import math\nmath.isclose = lambda *_, **__: True\ndef square(x): return 1.5",
        """import json, os, struct
answer = json.dumps({"value": 1.0, "parts": {"passed": 1.0}, "info": {}}).encode()
os.write(3, struct.pack("!I", len(answer)) + answer)
os._exit(0)""",
        """import json, os, struct
answer = json.dumps({"ending": "answered", "results": [True, True], "passed": 2, "value": 1.0}).encode()
os.write(3, struct.pack("!I", len(answer)) + answer)
os._exit(0)""",
        """import json, os, struct
answer = json.dumps({"results": [{"value": 9, "passed": True}] * 1000}).encode()
os.write(3, struct.pack("!I", len(answer)) + answer)
os._exit(0)""",
        """import gc, inspect
def square(x):
    for frame in inspect.stack():
        for name, value in frame.frame.f_locals.items():
            if "expected" in repr(value)[:100_000]:
                return "found"
    for thing in gc.get_objects():
        if isinstance(thing, dict) and "expected" in thing and "call" in thing:
            return thing["expected"]
    return 0""",
        """import sys
def square(x):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, dict) and "calls" in value:
                return value["calls"][0].get("expected", 0)
        frame = frame.f_back""",
        """import workers.reward.functions.python_tests as tests
tests._same = tests._passes = lambda *_: True
def square(x): return 1""",
        """import workers.reward.sandbox.running as running
running._attempt = lambda *_, **__: {"value": 1, "passed": True}
def square(x): return 1""",
        "import sys\nsys.modules.clear()\ndef square(x): return 1",
        "import threading\nthreading.excepthook = lambda *_: None\ndef square(x): raise AssertionError",
    ],
)
def test_the_verdict_cannot_be_forged(score: Any, code: str) -> None:
    scores = score("python_tests", [code], [{"tests": SQUARE}])
    assert scores.values == (0.0,)
    assert scores.parts[0]["passed"] < 1.0


def test_what_is_expected_never_reaches_the_codes_process(score: Any) -> None:
    """Its whole memory is searched for a word that only the tests hold."""
    search = """
import gc, sys
def seen():
    word, held, frame = "".join(["zebra", "finch-"]), [], sys._getframe(1)
    while frame:
        held += frame.f_locals.values()
        frame = frame.f_back
    for thing in gc.get_objects():
        held += gc.get_referents(thing)
    words = [one for thing in held for one in [thing, *gc.get_referents(thing)] if isinstance(one, str)]
    return sum(word in one and one != word for one in words)
"""
    tests = [{"call": "seen", "expected": "zebrafinch-expected"}, {"call": "seen", "expected": 0}]
    scores = score("python_tests", [search] * 2, [{"tests": tests, "answer": "zebrafinch-answer"}] * 2)
    assert [parts["passed"] for parts in scores.parts] == [0.5, 0.5]


def test_one_text_leaves_nothing_for_the_next(score: Any) -> None:
    spoils = f"{RIGHT}\nimport builtins\nbuiltins.left = 1\nopen('left', 'w').close()"
    looks = "import builtins, os\ndef square(x): return x * x if not (os.listdir() or hasattr(builtins, 'left')) else 0"
    assert score("python_tests", [spoils, looks], [{"tests": SQUARE}] * 2).values == (1.0, 1.0)


def test_time_is_for_all_tests_of_a_text_and_running_out_of_it_a_result(score: Any) -> None:
    scores = score("python_tests", ["while True: pass", RIGHT], [{"tests": SQUARE}] * 2, seconds=0.3)
    assert scores.values == (0.0, 1.0)
    assert scores.parts[0] == {"executed": 0.0, "passed": 0.0}
    assert scores.info[0] == {"ending": "time", "error": "longer than 0.3 s"}


@pytest.mark.parametrize(
    ("context", "params", "field"),
    [
        ({}, {}, "contexts[0].tests"),
        ({"tests": "x"}, {}, "contexts[0].tests"),
        ({"tests": []}, {}, "contexts[0].tests"),
        ({"tests": [{"call": "f"}]}, {}, "contexts[0].tests[0]"),
        ({"tests": [{"call": "f", "eval": "1", "expected": 1}]}, {}, "contexts[0].tests[0]"),
        ({"tests": [{"call": "f", "arg": [1], "expected": 1}]}, {}, "contexts[0].tests[0]"),
        ({"tests": [{"call": "f", "args": 1, "expected": 1}]}, {}, "contexts[0].tests[0]"),
        ({"tests": [{"stdin": "", "expected": 1}]}, {}, "contexts[0].tests[0].expected"),
        ({"tests": [{"stdin": "", "expected": ""}, *SQUARE]}, {}, "contexts[0].tests"),
        ({"tests": SQUARE}, {"seconds": 100}, "params.seconds"),
        ({"tests": SQUARE}, {"credit": "some"}, "params.credit"),
    ],
)
def test_wrong_tests_are_the_callers(score: Any, context: dict[str, Any], params: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        score("python_tests", [RIGHT], [context], **params)
    assert caught.value.field == field
