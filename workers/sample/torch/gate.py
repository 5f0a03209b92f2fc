"""Lets waiting samples in, in turn, while the cache has room for them. Knows no tensors.

A sample costs its owner the tokens that may have to be computed for it: its `max_tokens`, and for a request's first one
the prompt. That is what the device's time goes to, however many rows it is spread over.
"""

from collections import Counter

from workers.sample.torch.admission import Vacancy
from workers.sample.torch.rows import Job
from workers.sample.torch.starting import Starting
from workers.sample.torch.starts import PART
from workers.sample.torch.table import Table
from workers.sample.torch.waiting import Waiting

#: Rounds in which others are let in before a request that the cache has no room for.
PATIENCE = 16


class Gate:
    def __init__(self, waiting: Waiting, starting: Starting, table: Table) -> None:
        self._waiting, self._starting, self._table = waiting, starting, table

    def admit(self, prefill_tokens: int) -> None:
        """Start what fits, each sample in turn. A tenant that has so many prompt tokens on their way waits for them.
        Others go past what does not fit, of its own tenant too, but once that was so for PATIENCE rounds they wait
        until it does. Where no row is free, only who is first may go without one."""
        rotation = self._waiting.rotation
        rotation.new_round()
        if rotation.first() is None:
            return
        vacancy, pending = self._vacancy(), self._pending()
        passed: list[Job] = []
        while (job := rotation.first()) is not None:
            if pending[job.request.tenant] >= prefill_tokens and self._starting.of(job) is None:
                rotation.pass_over()
            elif self._let_in(job, vacancy, pending, prefill_tokens):
                for each in passed:
                    each.passed += 1
                passed.clear()
            elif job.passed >= PATIENCE or vacancy.rows >= vacancy.max_rows:
                return
            else:
                passed.append(job)
                rotation.pass_over_owner()

    def _let_in(self, job: Job, vacancy: Vacancy, pending: Counter[str], prefill_tokens: int) -> bool:
        """Admit one sample, or the scoring of a prompt, if there is room."""
        request, first = job.request, not job.admitted
        kept = vacancy.fits(request.cells or len(request.prompt))
        if not kept and not self._needs_no_row(job, prefill_tokens):
            return False
        count = 1 if request.cells else min(job.unadmitted, vacancy.max_rows)
        known = self._starting.of(job)
        start = self._starting.add(job, count, kept=kept)
        if start is not known:
            pending[request.tenant] += start.left
        if kept and (request.cells or start is not known):
            vacancy.take(request.cells or len(request.prompt))
        job.admitted, job.passed = job.admitted + count, 0
        gone = not job.unadmitted
        if gone:
            self._waiting.admitted(job)
        self._waiting.rotation.charge(count * request.sample_tokens + first * len(request.prompt), gone=gone)
        return True

    def _needs_no_row(self, job: Job, prefill_tokens: int) -> bool:
        """Whether all can be had from one pass over the prompt."""
        most = PART if job.request.seeded else max(PART, prefill_tokens)
        return not job.request.cells and len(job.request.prompt) <= most

    def _vacancy(self) -> Vacancy:
        cells = [row.job.request.cells for row in self._table.rows] + [start.cells for start in self._starting]
        rows = len(self._table) + sum(start.rows for start in self._starting)
        cache = self._table.cache
        return Vacancy(rows, max(cells, default=0), cache.max_rows, cache.cache_tokens)

    def _pending(self) -> Counter[str]:
        """Prompt tokens on their way, by tenant."""
        pending: Counter[str] = Counter()
        for start in self._starting:
            pending[next(iter(start.jobs)).request.tenant] += start.left
        return pending
