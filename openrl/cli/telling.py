"""How a component tells of its work: the form of its log, and traces where the environment names a receiver."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from openrl.config import Settings


@contextmanager
def telling(service: str, settings: Settings) -> Iterator[None]:
    """Until the block ends. Raises ModuleNotFoundError where traces are asked for without the extra `otel`."""
    from openrl.telemetry import logs, traces

    logs.use(settings.log.format)
    with traces.exporting(service, os.environ):
        yield
