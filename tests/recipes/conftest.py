"""Recipes as Python sees them when they are started by their path: each one's own folder is where it imports from."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"


class Recipe:
    """A recipe's modules as attributes, each imported when it is first asked for."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __getattr__(self, name: str) -> ModuleType:
        if name not in self.names:
            raise AttributeError(name)
        return importlib.import_module(name)


@pytest.fixture(scope="module")
def text_to_sql() -> Iterator[Recipe]:
    """Other recipes may have modules of the same names."""
    folder = RECIPES / "text_to_sql"
    names = [path.stem for path in folder.glob("*.py")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
        yield Recipe(names)
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(others)
