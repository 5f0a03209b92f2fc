"""Where attempts come from: a search over declared options, a coding agent, or another record."""

from dataclasses import dataclass, field
from typing import Protocol

from autoresearch.store import Attempt, Options


@dataclass(frozen=True, slots=True)
class Proposal:
    commit: str  #: the files to run
    options: Options = field(default_factory=dict)  #: for the command


class Proposer(Protocol):
    async def propose(self, attempt: Attempt, parent: Attempt | None) -> Proposal:
        """What the attempt tries, from its parent on; attempt 0 has none and is the unchanged target.

        Raises Crashed or Refused where there is nothing to try.
        """

    def learn(self, attempt: Attempt) -> None:
        """How an attempt ended; may be told again after a restart."""
