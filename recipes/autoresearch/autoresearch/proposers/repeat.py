"""The same attempts that another record holds, to run them again: with other seeds, or one after another."""

from dataclasses import dataclass

from autoresearch.errors import Crashed
from autoresearch.proposers import Proposal
from autoresearch.store import Attempt, Record
from autoresearch.worktrees import Worktrees


@dataclass(frozen=True, slots=True)
class Repeat:
    other: Record
    worktrees: Worktrees

    async def propose(self, attempt: Attempt, parent: Attempt | None) -> Proposal:
        known = {one.number: one for one in self.other.attempts()}.get(attempt.number)
        if known is None or known.commit is None:
            raise Crashed(f"{self.other.folder} has no files of attempt {attempt.number}")
        self.worktrees.fetch(self.other.repository, known.commit, f"attempt-{attempt.number:04}")
        return Proposal(known.commit, known.options)

    def learn(self, attempt: Attempt) -> None:
        """It knows already."""
