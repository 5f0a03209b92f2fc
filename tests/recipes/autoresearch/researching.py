"""A research folder of a few lines, and how to change it."""

from collections.abc import Callable
from pathlib import Path

TOML = """
command = ["{python}", "{folder}/target.py", "{seed}", "{problems}", "{out}"]
editable = ["settings.json"]

[metric]
name = "score"
mode = "max"
problems = "problems.json"

[budget]
attempts = 4
at_once = 2
seconds = 20
seeds = 2
confirm_seeds = 0
"""
SPACE = """
[space.lr]
type = "float"
low = 0.01
high = 1.0
log = true
default = 0.1
"""
#: Its score is `lr` of settings.json, or of the command line, a little more with each seed.
TARGET = """
import json, pathlib, sys
seed, problems, out = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
lr = float(sys.argv[5]) if len(sys.argv) > 5 else json.loads(pathlib.Path("settings.json").read_text())["lr"]
scores = [lr + seed / 100 + place / 1000 * lr for place in range(4)]
(out / "problems.json").write_text(json.dumps(scores))
print(f"score: {sum(scores) / 4}")
"""

Folder = Callable[..., Path]


def research_folder(place: Path, more: str = SPACE, toml: str = TOML, **files: str) -> Path:
    """More of the toml comes as text, other files by name, with two underscores for the dot."""
    place.mkdir()
    (place / "autoresearch.toml").write_text(toml + more)
    (place / "program.md").write_text("Make it better.\n")
    (place / "settings.json").write_text('{"lr": 0.1}\n')
    (place / "target.py").write_text(TARGET)
    for name, text in files.items():
        (place / name.replace("__", ".")).write_text(text)
    return place
