"""Ends what a harness started once that is gone: `python leash.py RECORD START`, with a pipe from it as input."""

import sys

if __name__ == "__main__":
    sys.stdin.read()
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from autoresearch.processes import Mark, kill_marked

    kill_marked(Mark(*sys.argv[1:3]))
