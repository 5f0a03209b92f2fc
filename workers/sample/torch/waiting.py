"""Requests that wait: for their weights, then for their turn. Knows no cache and no model."""

from collections import deque

from openrl.domain.ids import DepotKey
from workers.rotation import Rotation
from workers.sample.request import QUANTUM
from workers.sample.torch.adapters import Adapters
from workers.sample.torch.rows import Job


class Waiting:
    """`submit` may be called by any thread, the rest by the one that computes."""

    def __init__(self, adapters: Adapters) -> None:
        self.rotation: Rotation[Job] = Rotation(QUANTUM, over=lambda job: job.over)
        self._adapters = adapters
        self._inbox: deque[Job] = deque()
        self._over: deque[Job] = deque()
        self._waiting: dict[Job, None] = {}
        self._absent: dict[DepotKey, list[Job]] = {}  #: whose weights nobody fetches yet
        self._asking: Rotation[DepotKey] = Rotation(1, over=lambda key: key not in self._absent)
        self._coming: dict[DepotKey, list[Job]] = {}

    def __len__(self) -> int:
        """Requests not wholly admitted."""
        return len(self._waiting) + len(self._inbox)

    def submit(self, job: Job) -> None:
        job.future.add_done_callback(lambda _: self._over.append(job))
        self._inbox.append(job)

    def take_in(self) -> None:
        """Those that have come take their turns, once their weights are here."""
        while self._inbox:
            job = self._inbox.popleft()
            if not (job.over or job.settle()):
                self._enter(job)
        self._ask()
        self._welcome()

    def drain(self) -> bool:
        """Let go of requests that were settled, failed or cancelled. Whether there were any."""
        found = bool(self._over)
        while self._over:
            job = self._over.popleft()
            self._waiting.pop(job, None)
            if job.holds_policy and job.request.policy is not None:
                job.holds_policy = False
                self._adapters.release(job.request.policy)
        return found

    def admitted(self, job: Job) -> None:
        """Nothing of it waits any more."""
        del self._waiting[job]

    def fail(self, error: Exception) -> None:
        """Everything that waits."""
        self.take_in()
        for job in list(self._waiting):
            job.fail(error)

    def _enter(self, job: Job) -> None:
        self._waiting[job] = None
        key, request = job.request.policy, job.request
        if key is None:
            self.rotation.add(job, tenant=request.tenant, owner=request.sampler)
        elif key in self._absent:
            self._absent[key].append(job)
        elif key in self._adapters and self._hold(key, [job]):
            self._coming.setdefault(key, []).append(job)
        else:
            self._absent[key] = [job]
            self._asking.add(key, tenant=request.tenant, owner=request.sampler)

    def _ask(self) -> None:
        """Have weights fetched, in turn, while there are places for them."""
        while (key := self._asking.first()) is not None:
            jobs = [job for job in self._absent[key] if not job.over]
            if jobs and not self._hold(key, jobs):
                return
            self._asking.charge(1, gone=True)
            del self._absent[key]
            if jobs:
                self._coming.setdefault(key, []).extend(jobs)

    def _hold(self, key: DepotKey, jobs: list[Job]) -> bool:
        for job in jobs:
            job.holds_policy = self._adapters.hold(key)
        return jobs[0].holds_policy

    def _welcome(self) -> None:
        """Who waited for weights that have come takes its turn; who waited for some that cannot be had fails."""
        for key, jobs in list(self._coming.items()):
            left = [job for job in jobs if not job.over]
            try:
                if left and not self._adapters.ready(key):
                    continue
            except Exception as error:
                for job in left:
                    job.fail(error)
                left = []
            del self._coming[key]
            for job in left:
                self.rotation.add(job, tenant=job.request.tenant, owner=job.request.sampler)
