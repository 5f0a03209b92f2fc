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
