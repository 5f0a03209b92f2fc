import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "recipes" / "autoresearch"))
sys.path.insert(0, str(Path(__file__).parent))

from researching import Folder, research_folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return partial(research_folder, tmp_path / "research")
