"""What devices did of late, as their workers told it: the last KEPT periods of each. Knows no ops."""

import json
from collections import defaultdict
from typing import Any, Final, Protocol

import redis

from openrl.domain.ids import RunId, TenantId, WorkerId
from openrl.domain.stretch import Doing, Owner, Period, Stretch
from openrl.ledger.outage import told_apart

KEPT: Final = 300  #: periods of a worker; ten minutes as workers tell them
KEPT_SECONDS: Final = 3600  #: after the last one
_DOINGS: Final = frozenset(Doing)


class Timelines(Protocol):
    def add(self, worker: WorkerId, period: Period) -> None:
        """The worker's newest period; the oldest goes once there are KEPT."""
        ...

    def of(self, worker: WorkerId) -> list[Period]:
        """Oldest first; none of a worker without a device."""
        ...


class RedisTimelines:
    """`Timelines` in Redis, a list for each worker; one round trip per call."""

    def __init__(self, client: redis.Redis, prefix: str = "openrl:") -> None:
        self._client, self._prefix = client, prefix

    def add(self, worker: WorkerId, period: Period) -> None:
        pipeline = self._client.pipeline()
        pipeline.rpush(self._key(worker), encoded(period))
        pipeline.ltrim(self._key(worker), -KEPT, -1)
        pipeline.expire(self._key(worker), KEPT_SECONDS)
        with told_apart():
            pipeline.execute()

    def of(self, worker: WorkerId) -> list[Period]:
        with told_apart():
            return [decoded(period) for period in self._client.lrange(self._key(worker), 0, -1)]

    def _key(self, worker: WorkerId) -> str:
        return f"{self._prefix}timeline:{worker}"


class MemoryTimelines:
    """`Timelines` in memory: a double for tests."""

    def __init__(self) -> None:
        self._periods: defaultdict[WorkerId, list[Period]] = defaultdict(list)

    def add(self, worker: WorkerId, period: Period) -> None:
        self._periods[worker] = [*self._periods[worker], period][-KEPT:]

    def of(self, worker: WorkerId) -> list[Period]:
        return list(self._periods[worker])


def encoded(period: Period) -> bytes:
    """Small: owners once, times as microseconds of the period."""
    owners = {owner: at for at, owner in enumerate(sorted(_owners(period), key=lambda owner: owner.name))}
    stretches = [
        [each.doing, *(_micros(when - period.began) for when in (each.began, each.ended)), [owners[o] for o in each.of]]
        for each in period.stretches
    ]
    names = [[owner.tenant, owner.name] for owner in owners]
    return json.dumps([period.began, period.ended, period.left_out, names, stretches]).encode()


def decoded(data: bytes | str) -> Period:
    began, ended, left_out, names, stretches = json.loads(data)
    owners = [Owner(TenantId(tenant), RunId(name)) for tenant, name in names]
    known = [each for each in stretches if each[0] in _DOINGS]  # a newer worker may do more
    return Period(
        began=began,
        ended=ended,
        stretches=tuple(_stretch(began, owners, *each) for each in known),
        left_out=left_out + len(stretches) - len(known),
    )


def _stretch(since: float, owners: list[Owner], doing: str, began: int, ended: int, of: list[Any]) -> Stretch:
    return Stretch(
        doing=Doing(doing),
        began=since + began / 1e6,
        ended=since + ended / 1e6,
        of=frozenset(owners[at] for at in of),
    )


def _owners(period: Period) -> set[Owner]:
    return {owner for stretch in period.stretches for owner in stretch.of}


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
