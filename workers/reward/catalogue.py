"""The reward functions there are: the built-in ones and those of installed packages, each by its name.

Loaded in the zygote only: what a package does when it is imported, or a library that takes long, is no business of the
worker's, which is told the facts.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

from openrl.rewards import ENTRY_POINTS, Declared, RewardFunction, declared

#: By name, the module under `functions` whose `score` it is.
BUILT_IN: Final = (
    "exact",
    "format",
    "json_schema",
    "judge",
    "length",
    "math",
    "numeric",
    "python_tests",
    "regex",
    "source",
    "sql_execution",
)


@dataclass(frozen=True, slots=True)
class Catalogue:
    functions: dict[str, RewardFunction] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)  #: why, by name

    def facts(self) -> dict[str, Any]:
        """As JSON: what the worker has to know."""
        functions = {name: asdict(declared(function)) for name, function in self.functions.items()}
        return {"functions": functions, "broken": self.broken}


@dataclass(frozen=True, slots=True)
class Listing:
    """What the worker was told."""

    functions: dict[str, Declared]
    broken: dict[str, str]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Listing":
        return cls({name: Declared(**fact) for name, fact in facts["functions"].items()}, facts["broken"])


def load() -> Catalogue:
    catalogue = Catalogue()
    for name in BUILT_IN:
        _enter(catalogue, name, partial(_built_in, name))
    for point in _points():
        if point.name in BUILT_IN:
            catalogue.broken[f"{point.name} of {point.value}"] = "the name is that of a built-in function"
        else:
            _enter(catalogue, point.name, point.load)
    return catalogue


def _built_in(name: str) -> Any:
    return import_module(f"workers.reward.functions.{name}").score


def _points() -> Iterable[Any]:
    return entry_points(group=ENTRY_POINTS)


def _enter(catalogue: Catalogue, name: str, fetch: Callable[[], Any]) -> None:
    try:
        function = fetch()
        if not callable(function):
            raise TypeError(f"it is {type(function).__name__} and cannot be called")
        declared(function)
    except Exception as error:  # somebody else's module may do anything when it is imported
        catalogue.broken[name] = f"{type(error).__name__}: {error}"
    else:
        catalogue.functions[name] = function
