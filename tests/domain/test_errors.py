import pickle
from inspect import signature

import pytest

from openrl.cli import errors as cli_errors
from openrl.domain import errors, full_run_errors, memory_errors
from openrl.domain.errors import CallerError, NotFoundError, OpenRLError, OperatorError, PassingError

BRANCHES = {OpenRLError, CallerError, NotFoundError, PassingError, OperatorError}
EVERYTHING = {**vars(errors), **vars(full_run_errors), **vars(memory_errors), **vars(cli_errors)}
KINDS = [kind for kind in EVERYTHING.values() if isinstance(kind, type) and issubclass(kind, OpenRLError)]
LEAVES = [kind for kind in KINDS if kind not in BRANCHES]
FACTS = {str: "a fact", int: 7, float: 0.5, tuple[str, ...]: ("one", "two")}


@pytest.mark.parametrize("kind", LEAVES)
def test_a_leaf_says_the_same_after_a_journey(kind: type[OpenRLError]) -> None:
    error = kind(*(FACTS[parameter.annotation] for parameter in signature(kind).parameters.values()))
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error) != ""


@pytest.mark.parametrize("kind", LEAVES)
def test_a_leaf_tells_who_can_put_it_right(kind: type[OpenRLError]) -> None:
    assert sum(issubclass(kind, branch) for branch in (CallerError, PassingError, OperatorError)) == 1
