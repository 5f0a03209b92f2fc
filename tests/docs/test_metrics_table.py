"""docs/howto/observability.md lists every metric there is, as the registries tell of it."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from openrl.domain.worker import DeviceUse
from openrl.gateway.depth import Depth
from openrl.gateway.metrics import GatewayMetrics
from workers.metrics import REGISTRY, Device

PAGE = Path(__file__).parents[2] / "docs/howto/observability.md"
OTHERS = ("process_", "python_")  #: prometheus_client's own, which it documents


def table(registry: CollectorRegistry) -> list[str]:
    """Its metrics as rows of a table."""
    labels = {name: _labels(collector) for collector, names in registry._collector_to_names.items() for name in names}
    families = [family for family in registry.collect() if not family.name.startswith(OTHERS)]
    return [_row(family, labels.get(family.name) or _sampled(family)) for family in families]


def _row(family: Metric, labels: str) -> str:
    return f"| `{_name(family)}` | {family.type} | {labels} | {family.documentation} |"


def _labels(collector: object) -> str:
    return ", ".join(f"`{name}`" for name in getattr(collector, "_labelnames", ()))


def _sampled(family: Metric) -> str:
    return ", ".join(
        f"`{name}`" for name in sorted({name for sample in family.samples for name in sample.labels if name != "le"})
    )


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def gateway_rows() -> list[str]:
    metrics = GatewayMetrics()
    depth = Depth(kind="train", base_model="m", workers=0, slots=0, waiting=0, held=0, oldest_seconds=None)
    metrics.tell_queues(lambda: [depth])
    metrics.tell_broker(lambda: 0.5)
    return table(metrics.registry)


def worker_rows() -> list[str]:
    device = CollectorRegistry()
    device.register(Device(DeviceUse, lambda: 0))
    own = [row for row in table(REGISTRY) if not row.startswith(("| `openrl_device_", "| `openrl_sample_rows"))]
    return [*own, *table(device)]


def listed(part: str) -> Iterator[str]:
    """The rows of the table under that heading."""
    text = PAGE.read_text().partition(f"### {part}\n")[2].partition("\n#")[0]
    return (line for line in text.splitlines() if line.startswith("| `"))


def test_the_gateways_metrics_are_listed() -> None:
    assert list(listed("Gateway")) == gateway_rows()


def test_the_workers_metrics_are_listed() -> None:
    assert list(listed("Workers")) == worker_rows()
