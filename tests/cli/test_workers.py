import json

import pytest
from rich.console import Console

from openrl.cli import workers

USE = {"seconds": 10.0, "busy_seconds": 2.5, "train": {"tokens": 4000}, "sample": {"tokens": 7}}
FOUND = [
    {"id": "a-1", "role": "device", "models": ["tiny"], "slots": 128, "draining": False, "use": USE},
    {"id": "b-2", "role": "reward", "models": [], "slots": 2, "draining": True, "use": None},
]


def test_workers_are_told_in_a_table() -> None:
    console = Console(width=120)
    with console.capture() as shown:
        console.print(workers.table(FOUND))
    _, device, reward = [line.split() for line in shown.get().splitlines()]
    assert device == ["device", "a-1", "tiny", "at", "work", "128", "25%", "4,000", "7"]
    assert reward == ["reward", "b-2", "draining", "2"]


def test_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    workers.show(FOUND, as_json=True)
    assert json.loads(capsys.readouterr().out) == FOUND
