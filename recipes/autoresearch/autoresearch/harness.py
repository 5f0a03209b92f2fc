"""Carries out a research: attempts side by side, each compared with its parent, the winner confirmed in the end.

Everything is in the record before it counts, so a harness that was killed goes on where it was: attempts that ended
stay as they are, one whose files were proposed goes on with the seeds that are missing, any other begins anew.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from autoresearch import verdicts
from autoresearch.config import Research
from autoresearch.errors import AttemptError, Crashed, Refused, ResearchError
from autoresearch.proposers import Proposer
from autoresearch.store import Attempt, Confirmation, Record, Run, write_text
from autoresearch.target import CONFIRMING, SEARCHING, Target
from autoresearch.worktrees import Worktrees

Watch = Callable[[Attempt, str], None]
"""Is told what an attempt is doing: "proposing", "seed 3", "ended", …"""


@dataclass(slots=True)
class Harness:
    research: Research
    record: Record
    worktrees: Worktrees
    proposer: Proposer
    target: Target
    watch: Watch
    attempts: dict[int, Attempt] = field(default_factory=dict)

    async def search(self) -> None:
        """All attempts of the budget, `at_once` of them side by side. Raises ResearchError where attempt 0 fails."""
        self.attempts = {attempt.number: attempt for attempt in self.record.attempts()}
        for attempt in self.attempts.values():
            if attempt.state == "ended":
                self.proposer.learn(attempt)
        self._judge()
        line = iter(self._line())
        await _together(self._work(line) for _ in range(self.research.budget.at_once))

    async def confirm(self) -> Confirmation | None:
        """The best attempt against the unchanged target, on seeds and problems that chose nothing. None where no
        attempt is better, or none is to be confirmed."""
        winner = best_of(self.attempts, self.research.metric.mode)
        count = self.research.budget.confirm_seeds
        if winner is None or count == 0:
            return None
        known = self.record.confirmation()
        if known is None or known.winner != winner.number:
            known = Confirmation(winner=winner.number, runs={0: [], winner.number: []})
        first = self.research.budget.seeds
        pairs = [(number, seed) for seed in range(first, first + count) for number in (0, winner.number)]
        line = iter([pair for pair in pairs if not _has(known.runs[pair[0]], pair[1])])
        await _together(self._confirm(known, line) for _ in range(self.research.budget.at_once))
        chosen = {seed for _, seed in pairs}
        base, better = (
            [run.result() for run in known.runs[number] if run.seed in chosen] for number in (0, winner.number)
        )
        known.comparison = verdicts.compare(base, better, self.research.metric.mode)
        self.record.save_confirmation(known)
        return known

    def best(self) -> Attempt:
        """Of those that were kept, the one with the best figures; the unchanged target at first."""
        kept = {number: one for number, one in self.attempts.items() if one.outcome == "kept"}
        return best_of(kept, self.research.metric.mode) or self.attempts[0]

    def _line(self) -> Iterator[Attempt]:
        """Whom to carry out next: first those that an earlier start left, then new ones, each from the best so far."""
        yield from [attempt for attempt in self.attempts.values() if attempt.state != "ended"]
        for number in range(self.research.budget.attempts + 1):
            if number in self.attempts:
                continue
            parent = None if number == 0 else self.best().number if self.research.agent else 0
            attempt = Attempt(number=number, parent=parent, began=time.time())
            self.attempts[number] = attempt
            self._save(attempt, "begun")
            yield attempt

    async def _work(self, line: Iterator[Attempt]) -> None:
        for attempt in line:
            await self._carry_out(attempt)

    async def _carry_out(self, attempt: Attempt) -> None:
        try:
            if attempt.state == "begun":
                await self._propose(attempt)
            await self._run(attempt)
        except AttemptError as error:
            if attempt.number == 0:
                raise ResearchError(f"the unchanged target fails: {error}\nlogs: {self.record.of(0)}") from None
            attempt.outcome = "crashed" if isinstance(error, Crashed) else "refused"
            attempt.reason = str(error)
            if isinstance(error, Refused):
                write_text(self.record.of(attempt.number) / "diff.patch", error.diff)
        attempt.state, attempt.ended = "ended", time.time()
        self._save(attempt, "ended")
        self.proposer.learn(attempt)
        self._judge()

    async def _propose(self, attempt: Attempt) -> None:
        self.watch(attempt, "proposing")
        parent = None if attempt.parent is None else self.attempts[attempt.parent]
        if parent is not None and parent.commit is None:  # attempt 0, which has just begun too
            parent = parent.model_copy(update={"commit": self.record.facts()["base"]})
        proposal = await self.proposer.propose(attempt, parent)
        if parent is not None and parent.commit != proposal.commit:
            assert parent.commit is not None
            diff = self.worktrees.diff(parent.commit, proposal.commit)
            write_text(self.record.of(attempt.number) / "diff.patch", diff)
            attempt.edits = self.worktrees.edits(parent.commit, proposal.commit)
        attempt.commit, attempt.options, attempt.state = proposal.commit, proposal.options, "proposed"
        self._save(attempt, "proposed")

    async def _run(self, attempt: Attempt) -> None:
        """The seeds that it has not run yet."""
        budget = self.research.budget
        for seed in range(budget.seeds):
            if _has(attempt.runs, seed):
                continue
            self.watch(attempt, f"seed {seed + 1}/{budget.seeds}")
            left = budget.seconds - sum(run.seconds for run in attempt.runs)
            attempt.runs.append(await self.target.run(attempt, seed, SEARCHING, max(left, 1)))
            self._save(attempt, "ran")

    async def _confirm(self, confirmation: Confirmation, line: Iterator[tuple[int, int]]) -> None:
        for number, seed in line:
            attempt = self.attempts[number]
            self.watch(attempt, f"confirming, seed {seed}")
            try:
                run = await self.target.run(attempt, seed, CONFIRMING, self.research.budget.seconds)
            except AttemptError as error:
                raise ResearchError(f"attempt {number} failed while it was to be confirmed: {error}") from None
            confirmation.runs[number].append(run)
            self.record.save_confirmation(confirmation)
            self.watch(attempt, "confirmed")

    def _judge(self) -> None:
        """Keeps or drops those that ended and whose parent did."""
        for attempt in self.attempts.values():
            if attempt.state != "ended" or attempt.outcome is not None:
                continue
            if attempt.parent is None:
                attempt.outcome, attempt.reason = "kept", "the unchanged target"
            elif self.attempts[attempt.parent].state == "ended":
                self._compare(attempt, self.attempts[attempt.parent])
            else:
                continue
            self._save(attempt, "judged")

    def _compare(self, attempt: Attempt, parent: Attempt) -> None:
        before, after = ([run.result() for run in side.runs] for side in (parent, attempt))
        try:
            found = verdicts.compare(before, after, self.research.metric.mode)
        except ValueError as error:
            attempt.outcome, attempt.reason = "crashed", str(error)
            return
        attempt.comparison = found
        attempt.outcome = "kept" if found.gain > 0 and found.p < self.research.keep_below else "dropped"
        which, sure = "better" if found.gain > 0 else "no better", f"p {found.p:.3g}, {found.test}"
        attempt.reason = f"{which} than {parent.number}: {found.gain:+.4g} ({sure})"

    def _save(self, attempt: Attempt, doing: str) -> None:
        self.record.save(attempt)
        self.watch(attempt, doing)


def best_of(attempts: dict[int, Attempt], mode: verdicts.Mode) -> Attempt | None:
    """Whose mean is best, of those that were kept if any were; None where none beats the unchanged target."""
    usable = [one for one in attempts.values() if one.usable() and one.number != 0 and one.metric() is not None]
    usable = [one for one in usable if one.outcome == "kept"] or usable
    sign = 1 if mode == "max" else -1
    best = max(usable, key=lambda one: sign * (one.metric() or 0.0), default=None)
    base = attempts[0].metric() if 0 in attempts else None
    if best is None or base is None or sign * ((best.metric() or 0.0) - base) <= 0:
        return None
    return best


def _has(runs: list[Run], seed: int) -> bool:
    return any(run.seed == seed for run in runs)


async def _together(work: Iterator[Coroutine[Any, Any, None]]) -> None:
    """All of it at once; the first ResearchError ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except* ResearchError as errors:
        raise errors.exceptions[0] from None
