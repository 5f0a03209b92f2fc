"""What the service's devices did and when, as the service itself tells it (`GET /openrl/v1/timeline`), and sums of it.

The arithmetic is about spans, pairs of seconds (began, ended).
"""

import asyncio
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import httpx

Span = tuple[float, float]
CONTIGUOUS = 1e-3  #: seconds that two periods of a worker may be apart and still leave nothing out
PATIENCE_SECONDS = 15.0  #: for what workers tell every two seconds
GONE_SECONDS = 120.0  #: after which a worker of ours tells nothing more
FUTURE = 1e12  #: nothing has ended since then


@dataclass(frozen=True, slots=True)
class Stretch:
    """One pack, update, or row of decode steps on a worker's device."""

    worker: str
    doing: str  #: pack, update, sample or call
    began: float  #: seconds since 1970
    ended: float
    runs: tuple[str, ...]  #: ours in it
    others: int  #: of other tenants


class RecordIncomplete(Exception):
    """The service did not tell of all the time that was asked for."""


class Record:
    """All that was told so far. Fetch at least every few minutes: a service keeps it for ten."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        """The client has the service's address and the key."""
        self._client = client
        self.stretches: set[Stretch] = set()
        self.known: dict[str, Span] = {}  #: by worker, the time that was told of
        self.left_out = 0  #: stretches that were too many to be told
        self._since = 0.0

    async def begin(self) -> float:
        """What ended before is of no interest; answers the time."""
        self._since = await self.now()
        return self._since

    async def now(self) -> float:
        """The service's time. Raises HTTPStatusError where it keeps no timeline."""
        return float((await self._get(FUTURE))["now"])

    async def fetch(self) -> None:
        """Add what was told since the last time. Raises RecordIncomplete."""
        since = min((ended for _, ended in self.known.values()), default=self._since)
        for worker in (await self._get(since))["workers"]:
            if worker["began"] is not None:
                self._add(worker)

    async def until(self, when: float) -> None:
        """Add all that ended by then, once it is told. Workers that did nothing for us are not waited for for long.
        Raises RecordIncomplete where one that did is silent for GONE_SECONDS."""
        began = time.monotonic()
        patience = began + PATIENCE_SECONDS
        await self.fetch()
        while self._late(self.ours(), when) or (
            (not self.known or self._late(self.known, when)) and time.monotonic() < patience
        ):
            if time.monotonic() - began > GONE_SECONDS:
                raise RecordIncomplete("a worker that worked for these runs tells nothing any more: did it end?")
            await asyncio.sleep(0.5)
            await self.fetch()

    def _late(self, workers: Collection[str], when: float) -> bool:
        """Whether one of them has not told of all until then."""
        return any(self.known[worker][1] < when for worker in workers)

    def ours(self) -> set[str]:
        """Workers that did something for our runs."""
        return {stretch.worker for stretch in self.stretches if stretch.runs}

    async def _get(self, since: float) -> Any:
        answer = await self._client.get("/openrl/v1/timeline", params={"since": since})
        answer.raise_for_status()
        return answer.json()

    def _add(self, told: dict[str, Any]) -> None:
        worker, before = told["worker"], self.known.get(told["worker"])
        if before is not None and told["began"] - before[1] > CONTIGUOUS:
            raise RecordIncomplete(f"{worker} told nothing of {told['began'] - before[1]:.1f} s")
        if before is None or told["ended"] > before[1]:
            self.left_out += told["left_out"]
            self.known[worker] = (told["began"] if before is None else before[0], told["ended"])
        for each in told["stretches"]:
            runs = tuple(each["runs"])
            self.stretches.add(Stretch(worker, each["doing"], each["began"], each["ended"], runs, each["others"]))


# --- spans ------------------------------------------------------------------------------------------------------------


def union(spans: Iterable[Span]) -> list[Span]:
    """The same time as spans that neither touch nor overlap, in order."""
    joined: list[Span] = []
    for began, ended in sorted(spans):
        if joined and began <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        elif ended > began:
            joined.append((began, ended))
    return joined


def within(spans: Iterable[Span], window: Span) -> list[Span]:
    """What of them lies in the window."""
    cut = ((max(began, window[0]), min(ended, window[1])) for began, ended in spans)
    return [(began, ended) for began, ended in cut if ended > began]


def seconds(spans: Iterable[Span]) -> float:
    """How long at least one of them lasts."""
    return sum(ended - began for began, ended in union(spans))


def gaps(spans: Iterable[Span], window: Span) -> list[Span]:
    """The time of the window in which there is none of them."""
    edges = [window[0], *(edge for span in union(within(spans, window)) for edge in span), window[1]]
    return [(began, ended) for began, ended in zip(edges[::2], edges[1::2], strict=True) if ended > began]


# --- figures ----------------------------------------------------------------------------------------------------------


def figures(record: Record, window: Span) -> dict[str, float]:
    """Of the workers that worked for us in that time; shares are means over them. Raises RecordIncomplete where not all
    of the time was told."""
    inside = [each for each in record.stretches if each.ended > window[0] and each.began < window[1]]
    workers = sorted({each.worker for each in inside if each.runs})
    for worker in workers:
        began, ended = record.known[worker]
        if began > window[0] or ended < window[1]:
            raise RecordIncomplete(f"{worker} told of {ended - began:.0f} s only")
    if not workers:
        raise RecordIncomplete("no worker told of anything that it did for these runs")

    def spans(*doing: str) -> list[list[Span]]:
        """By worker."""
        return [
            [
                (each.began, each.ended)
                for each in inside
                if each.worker == worker and (each.doing in doing or not doing)
            ]
            for worker in workers
        ]

    def share(of_workers: list[list[Span]]) -> float:
        return sum(seconds(within(each, window)) for each in of_workers) / (window[1] - window[0]) / len(workers)

    packs = [each for each in inside if each.doing == "pack" and each.runs]
    idle = [ended - began for each in spans() for began, ended in gaps(each, window)]
    return {
        "busy": share(spans()),
        "busy_training": share(spans("pack", "update")),
        "busy_sampling": share(spans("sample")),
        "longest_gap_seconds": max(idle, default=0.0),
        "packs": len(packs),
        "runs_per_pack": sum(len(each.runs) + each.others for each in packs) / max(1, len(packs)),
        "workers": len(workers),
    }
