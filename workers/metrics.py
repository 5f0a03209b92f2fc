"""What a worker counts: its process is one worker, so these are the process's. No tenant and no run is named.

Whatever happens many times a second is not counted here but read off when somebody scrapes (`Device`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from openrl.domain.worker import DeviceUse

#: From a reward of a millisecond to an op that waited for an hour.
BUCKETS: Final = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

OPS: Final = Counter(
    "openrl_worker_ops",
    "Operations by how they ended here: done, refused, failed, given_back, drained, lost",
    ("kind", "outcome"),
    registry=REGISTRY,
)
WAITED: Final = Histogram(
    "openrl_op_wait_seconds", "From an operation's append to its claim", ("kind",), buckets=BUCKETS, registry=REGISTRY
)
TOOK: Final = Histogram(
    "openrl_op_seconds", "From an operation's claim to its end here", ("kind",), buckets=BUCKETS, registry=REGISTRY
)
PACK: Final = Histogram("openrl_pack_seconds", "Device time of one pack of batches", buckets=BUCKETS, registry=REGISTRY)
PACK_BATCHES: Final = Histogram(
    "openrl_pack_batches", "Batches in one pack", buckets=(1, 2, 4, 8, 16, 32, 64, 128), registry=REGISTRY
)
UPDATE: Final = Histogram(
    "openrl_update_seconds", "Device time of the optimizer steps taken together", buckets=BUCKETS, registry=REGISTRY
)
SNAPSHOT: Final = Histogram(
    "openrl_snapshot_seconds",
    "From reading a run to its snapshot in the ledger",
    buckets=BUCKETS,
    registry=REGISTRY,
)
RECOVERED: Final = Counter(
    "openrl_recoveries", "Runs brought back from a snapshot and their journal", registry=REGISTRY
)
START: Final = Gauge(
    "openrl_worker_start_seconds", "What each step of the start took, loading the model among them", ("step",),
    registry=REGISTRY,
)  # fmt: skip
READY: Final = Gauge("openrl_worker_ready", "1 from the first bell it could hear until it drains", registry=REGISTRY)
SILENT: Final = Gauge(
    "openrl_worker_silent_seconds", "For how long no bell could have been heard; 0 while it is well", registry=REGISTRY
)
DRAINING: Final = Gauge("openrl_worker_draining_seconds", "Since it was told to stop; 0 before", registry=REGISTRY)


class Device(Collector):
    """How busy a device is, as its tally has it, and how many samples are being drawn."""

    def __init__(self, use: Callable[[], DeviceUse], rows: Callable[[], int], *, passes: bool = True) -> None:
        """Without `passes` for an engine that does not know its own."""
        self._use, self._rows, self._passes = use, rows, passes

    def describe(self) -> list[Metric]:
        return list(self._families(DeviceUse(), 0))

    def collect(self) -> Iterator[Metric]:
        yield from self._families(self._use(), self._rows())

    def _families(self, use: DeviceUse, rows: int) -> Iterator[Metric]:
        yield CounterMetricFamily("openrl_device_up_seconds", "Since the device's loop began", value=use.seconds)
        yield CounterMetricFamily(
            "openrl_device_busy_seconds", "Of these, those in which something ran", value=use.busy_seconds
        )
        sides = {"train": use.train, "sample": use.sample}
        for name, text in (
            ("seconds", "Device time of training and of sampling"),
            ("passes", "Packs of training, decode steps of sampling"),
            ("tokens", "In the packs; drawn"),
        ):
            if name == "passes" and not self._passes:
                continue
            family = CounterMetricFamily(f"openrl_device_side_{name}", text, labels=("side",))
            for side, had in sides.items():
                family.add_metric((side,), getattr(had, name))
            yield family
        yield GaugeMetricFamily("openrl_sample_rows", "Samples being drawn together", value=rows)


@contextmanager
def device_told(use: Callable[[], DeviceUse], rows: Callable[[], int], *, passes: bool = True) -> Iterator[None]:
    """Tell of a device until the block ends."""
    device = Device(use, rows, passes=passes)
    REGISTRY.register(device)
    try:
        yield
    finally:
        REGISTRY.unregister(device)
