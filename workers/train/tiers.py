"""Where a run's state lies, and what has to move so that more fits. Pure: knows sizes and order of use, no tensors.

A run at work never moves. The others leave the device in the order of their last use: for main memory where the device
has memory of its own, and from there (or at once, where it has none) for the depot.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from openrl.domain.ids import RunId

#: Automatic budgets. On the device the sample engine's cache and the passes themselves need the rest.
DEVICE_SHARE = 0.25
HOST_SHARE = 0.5


class Tier(StrEnum):
    DEVICE = "device"
    HOST = "host"  #: main memory, beside a device that has its own
    DEPOT = "depot"  #: not in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Bytes that runs may take."""

    device: int
    host: int | None  #: None where the device computes in main memory: there is no tier in between

    @classmethod
    def of(cls, *, device_mb: float, host_mb: float, free_device: int, free_host: int, apart: bool) -> "Budgets":
        """From settings in megabytes (0: a share of the bytes that are free); `apart` where the device has memory of
        its own."""
        device = int(device_mb * 1e6) or int(free_device * DEVICE_SHARE)
        host = int(host_mb * 1e6) or int(free_host * HOST_SHARE)
        return cls(device=device, host=host if apart else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A run in one tier."""

    run: RunId
    size: int  #: bytes
    busy: bool = False  #: at work, or on its way already


@dataclass(frozen=True, slots=True)
class Move:
    run: RunId
    to: Tier


def moves(device: Iterable[Seen], host: Iterable[Seen], *, excess: int, host_left: int | None) -> list[Move]:
    """What has to move so that the device holds `excess` bytes less, in the order in which to do it.

    Both tiers come least recently used first. `host_left` bytes are free in main memory; None where the depot is the
    next tier. Runs that nobody may move are passed over, so that less than `excess` may come free.
    """
    leaving = _leaving(device, excess)
    if host_left is None:
        return [Move(each.run, Tier.DEPOT) for each in leaving]
    pushed = _leaving(host, sum(each.size for each in leaving) - host_left)
    host_left += sum(each.size for each in pushed)
    out = [Move(each.run, Tier.DEPOT) for each in pushed]
    return out + _placed(leaving, host_left)


def _leaving(oldest_first: Iterable[Seen], excess: int) -> list[Seen]:
    """Those to go until `excess` bytes are free."""
    chosen: list[Seen] = []
    for each in oldest_first:
        if excess <= 0:
            break
        if not each.busy:
            chosen.append(each)
            excess -= each.size
    return chosen


def _placed(leaving: list[Seen], host_left: int) -> list[Move]:
    """Main memory for those used last; the depot for what does not fit there."""
    found: list[Move] = []
    for each in reversed(leaving):
        fits = each.size <= host_left
        host_left -= each.size if fits else 0
        found.append(Move(each.run, Tier.HOST if fits else Tier.DEPOT))
    return found[::-1]
