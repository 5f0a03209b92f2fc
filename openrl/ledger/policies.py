"""Which policy versions are needed, for the ledger in memory: how many unsettled ops write or sample each, and which
are retired.

The ledger that it belongs to calls it with its lock held.
"""

from collections import Counter
from collections.abc import Callable

from openrl.domain.errors import WeightsRemoved
from openrl.domain.ids import DepotKey
from openrl.domain.op import Op, SampleOp, policy_of
from openrl.ledger.port import POLICY_SECONDS


class PolicyUse:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._needed: Counter[DepotKey] = Counter()
        self._used: dict[DepotKey, float] = {}  #: when the last op that needed it settled
        self._retired: dict[DepotKey, float] = {}

    def check(self, op: Op) -> None:
        """Raises WeightsRemoved."""
        if isinstance(op, SampleOp) and op.action.policy in self._retired:
            raise WeightsRemoved(op.sampler)

    def begin(self, op: Op) -> None:
        policy = policy_of(op)
        if policy is not None:
            self._needed[policy] += 1

    def end(self, op: Op) -> None:
        policy = policy_of(op)
        if policy is not None:
            self._needed[policy] -= 1
            self._used[policy] = self._clock()

    def retire(self, policy: DepotKey, unused_seconds: float | None) -> bool:
        if unused_seconds is not None and self._kept(policy, unused_seconds):
            return False
        self._retired[policy] = self._clock()
        self._used.pop(policy, None)
        return True

    def _kept(self, policy: DepotKey, seconds: float) -> bool:
        used = self._used.get(policy)
        return self._needed[policy] > 0 or (used is not None and used > self._clock() - seconds)

    def sweep(self) -> None:
        for known in (self._used, self._retired):
            for policy, since in list(known.items()):
                if since <= self._clock() - POLICY_SECONDS:
                    del known[policy]
