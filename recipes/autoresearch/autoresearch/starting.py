"""From a research folder to a harness that can begin, or go on."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoresearch import processes
from autoresearch.config import Research
from autoresearch.errors import ResearchError
from autoresearch.harness import Harness, Watch
from autoresearch.processes import Leash, Mark
from autoresearch.proposers import Proposer
from autoresearch.proposers.agent import CodingAgent
from autoresearch.proposers.repeat import Repeat
from autoresearch.proposers.search import Search
from autoresearch.store import Record
from autoresearch.target import Target
from autoresearch.worktrees import Worktrees

#: What may change between two starts on one record.
FREE = {"budget": {"attempts", "at_once", "seconds", "confirm_seeds"}, "agent": {"seconds"}}


@contextmanager
def harness(
    research: Research, folder: Path, record: Record, watch: Watch, like: Record | None = None
) -> Iterator[Harness]:
    """A harness on this record, alone there. What earlier starts left running is ended first, and nothing of this one
    is left in the end, however it ends.

    Raises ResearchError where the folder is another than the one the record is about, or another harness works on it.
    """
    processes.environment(research.environment, "environment", record.folder)
    if research.agent:
        processes.environment(research.agent.environment, "agent.environment", record.folder)
    with record.locked():
        mark = Mark.fresh(record.folder)
        processes.kill_earlier(mark)
        leash = Leash(mark)
        try:
            yield _prepared(research, folder.absolute(), record, watch, like, mark)
        finally:
            leash.close()


async def carry_out(harness: Harness) -> None:
    """Search, then confirm; the record says when each was over."""
    record = harness.record
    facts = record.facts()
    start: dict[str, Any] = {"began": time.time(), "at_once": harness.research.budget.at_once}
    facts["starts"] = [*facts["starts"], start]
    record.save_facts(facts)
    await harness.search()
    start["searched"] = time.time()
    record.save_facts(facts)
    await harness.confirm()
    start["ended"] = time.time()
    record.save_facts(facts)


def _prepared(
    research: Research, folder: Path, record: Record, watch: Watch, like: Record | None, mark: Mark
) -> Harness:
    worktrees = Worktrees(record.repository)
    base = _base(research, folder, record, worktrees)
    target = Target(research, folder, record, worktrees, mark, sys.executable)
    proposer: Proposer
    if like is not None:
        proposer = Repeat(like, worktrees)
    elif research.agent:
        proposer = CodingAgent(research, research.agent, folder, record, worktrees, base, mark, python=sys.executable)
    else:
        proposer = Search(research, base, record.database, record.attempts())
    return Harness(research, record, worktrees, proposer, target, watch)


def _base(research: Research, folder: Path, record: Record, worktrees: Worktrees) -> str:
    """The commit of the unchanged target. Raises ResearchError where the record has another."""
    tree, fixed = worktrees.base(folder), research.model_dump(mode="json", exclude=FREE)
    known = record.facts()
    if not known:
        base = worktrees.commit(tree, None, "attempt-0000")
        record.save_facts({"base": base, "tree": tree, "research": fixed, "starts": []})
        return base
    changed = [key for key in fixed if known["research"].get(key) != fixed[key]]
    if known["tree"] != tree:
        changed.append("files of the research folder")
    if changed:
        raise ResearchError(
            f"{record.folder} is the record of another research: changed since then: {', '.join(changed)}."
            " Put them back, or begin a new record with --record"
        )
    return str(known["base"])
