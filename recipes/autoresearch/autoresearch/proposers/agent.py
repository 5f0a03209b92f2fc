"""A coding agent's command line, whatever it is: it works in a worktree of its parent's files, and what it edited there
is the proposal."""

from dataclasses import dataclass
from pathlib import Path

from autoresearch import processes
from autoresearch.config import PROGRAM, Agent, Research, filled
from autoresearch.errors import Crashed
from autoresearch.processes import Mark
from autoresearch.proposers import Proposal
from autoresearch.readings import last_line
from autoresearch.store import Attempt, Record, write
from autoresearch.worktrees import Worktrees

_DIFF_CHARACTERS = 20_000  #: of each attempt's diff, in the history that agents read


@dataclass(frozen=True, slots=True)
class CodingAgent:
    research: Research
    agent: Agent
    folder: Path  #: the research folder
    record: Record
    worktrees: Worktrees
    base: str  #: the commit of the unchanged target
    mark: Mark
    python: str

    async def propose(self, attempt: Attempt, parent: Attempt | None) -> Proposal:
        if parent is None or parent.commit is None:
            return Proposal(self.base)
        place = self.record.worktree(attempt.number)
        self.worktrees.add(place, parent.commit)
        try:
            await self._work(attempt, place)
            commit = self.worktrees.take(
                place, parent.commit, f"attempt-{attempt.number:04}", self.research.editable, self.research.scratch
            )
        finally:
            self.worktrees.remove(place)
        return Proposal(commit)

    def learn(self, attempt: Attempt) -> None:
        """It reads the history."""

    async def _work(self, attempt: Attempt, place: Path) -> None:
        """The agent at work. Raises Crashed where it fails or takes too long."""
        own = self.record.of(attempt.number)
        history = own / "history.json"
        write(history, self._history())
        places: dict[str, object] = {
            "python": self.python,
            "research": self.folder,
            "folder": place,
            "program": place / PROGRAM,
            "history": history,
            "attempt": attempt.number,
        }
        log = own / "agent.log"
        try:
            ending = await processes.run(
                filled(self.agent.command, places),
                cwd=place,
                variables=processes.environment(self.agent.environment, "agent.environment", self.record.folder),
                home=own / "home",
                log=log,
                seconds=self.agent.seconds,
                mark=self.mark.of(f"{attempt.number}"),
            )
        except OSError as error:
            raise Crashed(f"the agent cannot be started: {error}") from None
        if ending.status is None:
            raise Crashed(f"the agent took longer than its {self.agent.seconds:g} s")
        if ending.status != 0:
            raise Crashed(f"the agent ended with status {ending.status}: {last_line(log)}")

    def _history(self) -> list[dict[str, object]]:
        """All attempts that ended, with their diffs, for an agent to learn from."""
        return [
            {
                "attempt": one.number,
                "parent": one.parent,
                "outcome": one.outcome,
                "reason": one.reason,
                self.research.metric.name: one.metric(),
                "diff": self.record.diff(one.number)[:_DIFF_CHARACTERS],
            }
            for one in self.record.attempts()
            if one.state == "ended"
        ]
