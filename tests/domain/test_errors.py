import pickle
from importlib import import_module
from inspect import signature
from pkgutil import walk_packages

import pytest

from openrl import domain
from openrl.cli import errors as cli_errors
from openrl.domain import errors
from openrl.domain.errors import CallerError, NotFoundError, OpenRLError, OperatorError, PassingError

BRANCHES = {OpenRLError, CallerError, NotFoundError, PassingError, OperatorError}
MODULES = [import_module(module.name) for module in walk_packages(domain.__path__, "openrl.domain.")]
EVERYTHING = {name: thing for module in (*MODULES, cli_errors) for name, thing in vars(module).items()}
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


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.__module__.startswith(errors.__name__)])
def test_an_error_can_be_had_from_the_package_whichever_module_it_is_in(kind: type[OpenRLError]) -> None:
    assert kind.__name__ in errors.__all__
    assert getattr(errors, kind.__name__) is kind
