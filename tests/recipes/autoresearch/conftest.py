import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "recipes" / "autoresearch"))
sys.path.insert(0, str(Path(__file__).parent))

from researching import SPACE, TARGET, TOML, Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A research folder; more of the toml comes as text, other files by name."""

    def make(more: str = SPACE, toml: str = TOML, **files: str) -> Path:
        place = tmp_path / "research"
        place.mkdir()
        (place / "autoresearch.toml").write_text(toml + more)
        (place / "program.md").write_text("Make it better.\n")
        (place / "settings.json").write_text('{"lr": 0.1}\n')
        (place / "target.py").write_text(TARGET)
        for name, text in files.items():
            (place / name.replace("__", ".")).write_text(text)
        return place

    return make
