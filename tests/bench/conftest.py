"""Benches as Python sees them when they are started by their path: their own folder is where they import from."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
