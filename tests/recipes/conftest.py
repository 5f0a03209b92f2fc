"""Recipes as Python sees them when they are started by their path: each one's own folder is where it imports from."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(scope="module")
def text_to_sql() -> Iterator[SimpleNamespace]:
    """Its modules, by the names they have for one another. Other recipes may have the same names for theirs."""
    folder = RECIPES / "text_to_sql"
    names = [path.stem for path in folder.glob("*.py")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
        for name in names:
            del sys.modules[name]
        sys.modules.update(others)
