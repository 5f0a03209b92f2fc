"""Coding agents, for which a script stands in: what comes of what they do."""

import asyncio
import json
import sys
from pathlib import Path

import psutil
import pytest
from autoresearch.config import Place, load
from autoresearch.errors import Crashed, Refused
from autoresearch.processes import MARK, Mark
from autoresearch.proposers import Proposal
from autoresearch.proposers.agent import CodingAgent
from autoresearch.store import Attempt, Record, Run
from autoresearch.worktrees import Worktrees
from researching import Folder

STAND_IN = Path(__file__).parents[3] / "recipes" / "autoresearch" / "examples" / "stand_in.py"


class Office:
    """A research with an agent whose steps the test chooses."""

    def __init__(self, folder: Folder, tmp_path: Path, *steps: str, seconds: float = 20) -> None:
        words = ["{python}", str(STAND_IN), "--history", "{history}", "--attempt", "{attempt}", *steps]
        place = Place.of(folder(more=f"\n[agent]\ncommand = {json.dumps(words)}\nseconds = {seconds}\n"))
        research = load(place)
        assert research.agent is not None
        self.record = Record(tmp_path / "record")
        self.worktrees = Worktrees(self.record.repository)
        self.base = self.worktrees.commit(self.worktrees.base(place.folder), None, "attempt-0000")
        self.mark = Mark.fresh(self.record.folder)
        self.agent = CodingAgent(
            research, research.agent, place.folder, self.record, self.worktrees, self.base, self.mark, sys.executable
        )
        run = Run(seed=0, metric=0.1, seconds=1)
        self.first = Attempt(number=0, commit=self.base, began=0, runs=[run], state="ended", outcome="kept")
        self.record.save(self.first)

    def propose(self, number: int = 1) -> Proposal:
        try:
            return asyncio.run(self.agent.propose(Attempt(number=number, parent=0, began=0), self.first))
        finally:
            assert not self.record.worktree(number).exists()
            assert not self.left()

    def left(self) -> list[psutil.Process]:
        """Processes of this research that still live."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK, "").startswith(self.mark.text()) and process.status() != "zombie":
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def settings(self, commit: str) -> dict[str, float]:
        place = self.record.folder / "look"
        self.worktrees.add(place, commit)
        return dict(json.loads((place / "settings.json").read_text()))


def test_an_edit_is_the_proposal(folder: Folder, tmp_path: Path) -> None:
    office = Office(folder, tmp_path, "lr=0.7")
    proposal = office.propose()
    assert proposal.commit != office.base and not proposal.options
    assert office.settings(proposal.commit) == {"lr": 0.7}
    assert "I know of 1 attempts; now: lr=0.7" in (office.record.of(1) / "agent.log").read_text()


def test_the_unchanged_target_needs_no_agent(folder: Folder, tmp_path: Path) -> None:
    office = Office(folder, tmp_path, "crash")
    proposal = asyncio.run(office.agent.propose(Attempt(number=0, began=0), None))
    assert proposal == Proposal(office.base)


def test_it_reads_how_all_attempts_went(folder: Folder, tmp_path: Path) -> None:
    office = Office(folder, tmp_path, "nothing", "lr=0.7")
    office.record.save(
        Attempt(number=1, parent=0, began=0, state="ended", outcome="refused", reason="it changed nothing")
    )
    office.record.save(Attempt(number=3, parent=0, began=0))
    office.propose(2)
    history = json.loads((office.record.of(2) / "history.json").read_text())
    assert [(one["attempt"], one["outcome"], one["score"]) for one in history] == [
        (0, "kept", 0.1),
        (1, "refused", None),
    ]
    assert history[1]["reason"] == "it changed nothing"


def test_a_crash_is_told_with_its_last_words(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(Crashed, match="ended with status 1: the stand-in fails, as it was told"):
        Office(folder, tmp_path, "crash").propose()


def test_an_edit_that_it_may_not_make_costs_it_the_allowed_ones_too(folder: Folder, tmp_path: Path) -> None:
    office = Office(folder, tmp_path, "forbidden")
    with pytest.raises(Refused, match=r"edited what it may not: target\.py \(but only settings\.json\)"):
        office.propose()
    assert "print('score: 1e9')" not in office.worktrees.diff(office.base, office.worktrees.tree(office.base))


def test_one_that_hangs_is_ended_when_its_time_is_up(folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(Crashed, match=r"took longer than its 0\.7 s"):
        Office(folder, tmp_path, "hang", seconds=0.7).propose()


def test_a_process_left_behind_is_ended_and_the_edit_counts(folder: Folder, tmp_path: Path) -> None:
    """`propose` looks for what is left; a second later nothing has been written either."""
    later = tmp_path / "later"
    office = Office(folder, tmp_path, f"stray={later}")
    assert office.settings(office.propose().commit) == {"lr": 0.1, "stray": True}
    assert not later.exists()


def test_one_that_cannot_be_started_has_crashed(folder: Folder, tmp_path: Path) -> None:
    office = Office(folder, tmp_path, "nothing")
    missing = office.agent.agent.model_copy(update={"command": ["no-such-agent"]})
    agent = CodingAgent(**{name: getattr(office.agent, name) for name in CodingAgent.__slots__} | {"agent": missing})
    with pytest.raises(Crashed, match=r"the agent cannot be started: .*no-such-agent"):
        asyncio.run(agent.propose(Attempt(number=1, parent=0, began=0), office.first))
