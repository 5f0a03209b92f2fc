"""What a run has written down: its metrics, its evaluations, and where it would go on.

`state.json` is written whole, after what it speaks of. What lies in the folder and is newer is of steps that will be
taken again.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class State:
    options: dict[str, Any]  #: that must be the same when the run goes on
    stage: str = ""  #: the newest one that has begun: "sft" or "rl"
    step: int = 0  #: how many of its steps are in `weights`
    weights: str | None = None  #: the checkpoint to go on from; None is the untrained adapter
    evaluated: list[str] = field(default_factory=list)  #: after which stages the unseen problems were answered
    lines: int = 0  #: of the metrics that tell of all this
    seconds: float = 0.0  #: that the run had taken


class Journal:
    """The folder of one run. `resume` takes up what lies there; otherwise the folder must not hold a run."""

    def __init__(self, folder: Path, options: dict[str, Any], *, resume: bool) -> None:
        self._metrics, self._unseen, self._state = (
            folder / name for name in ("metrics.jsonl", "unseen.json", "state.json")
        )
        folder.mkdir(parents=True, exist_ok=True)
        if resume and self._state.exists():
            self.state = self._taken_up(options)
        elif self._metrics.exists() and not resume:
            raise SystemExit(f"{folder} holds a run: go on with it with --resume, or choose another --out")
        else:
            self.state = State(options)
            self._metrics.write_text("")
        self.unseen: dict[str, list[dict[str, Any]]] = self._read_unseen()

    def _taken_up(self, options: dict[str, Any]) -> State:
        state = State(**json.loads(self._state.read_text()))
        for name, value in options.items():
            if state.options.get(name) != value:
                was = state.options.get(name)
                raise SystemExit(f"--{name.replace('_', '-')} was {was!r} when this run began, and is {value!r} now")
        lines = self._metrics.read_text().splitlines(keepends=True)
        write_whole(self._metrics, "".join(lines[: state.lines]))
        return state

    def _read_unseen(self) -> dict[str, list[dict[str, Any]]]:
        if not self.state.evaluated:
            return {}
        found = json.loads(self._unseen.read_text())
        return {stage: found[stage] for stage in self.state.evaluated}

    def add(self, line: dict[str, Any]) -> None:
        with self._metrics.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.state.lines += 1

    def keep_unseen(self, stage: str, answers: list[dict[str, Any]]) -> None:
        """Answers to the unseen problems after a stage, one for each; counts from the next `save` on."""
        self.unseen[stage] = answers
        self.state.evaluated.append(stage)
        write_whole(self._unseen, json.dumps(self.unseen, indent=1) + "\n")

    def save(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self.state, name, value)
        write_whole(self._state, json.dumps(asdict(self.state), indent=1) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        return read(self._metrics)


def read(metrics: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def write_whole(path: Path, text: str) -> None:
    """All of it or nothing, whenever the process ends."""
    draft = path.with_suffix(".draft")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
