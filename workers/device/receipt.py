"""What an op had of the device, as metrics of its result. Pure: knows sizes and times, no device.

Batches carry names with exactly one colon, so that the SDK can put the chunks of one call together again; the metrics
of an optimizer step are passed through to the caller as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPart:
    """A batch as one part of a pack."""

    tenant: str
    tokens: int
    waited_seconds: float  #: from its append to the pack's start


def batch_metrics(pack: Sequence[PackPart], seconds: float, padding_share: float) -> list[dict[str, float]]:
    """Of each batch of a pack that took `seconds` on the device, and had that share of padding in its passes.

    Device seconds are shared out by tokens: they add up to what the device worked, over chunks as over runs.
    """
    tokens, tenants = sum(each.tokens for each in pack), len({each.tenant for each in pack})
    return [
        {
            "pack_share:mean": (share := each.tokens / tokens if tokens else 1 / len(pack)),
            "pack_batches:mean": float(len(pack)),
            "pack_tenants:mean": float(tenants),
            "padding_share:mean": padding_share,
            "queue_seconds:max": each.waited_seconds,
            "device_seconds:sum": seconds * share,
        }
        for each in pack
    ]


def step_metrics(waited_seconds: float, seconds: float, together: int) -> dict[str, float]:
    """Of one of the optimizer steps that took `seconds` on the device `together`."""
    return {
        "queue_seconds": waited_seconds,
        "device_seconds": seconds / together,
        "steps_together": float(together),
    }
