"""What is needed of a sample engine, whichever computes."""

from concurrent.futures import Future
from typing import Protocol

from openrl.domain.sampling import SampleResult
from workers.sample.request import SampleRequest


class Sampler(Protocol):
    """All of it may be called from any thread."""

    def submit(self, request: SampleRequest, /) -> Future[SampleResult]:
        """Ask for samples. The future fails with FieldInvalid where the request cannot be served, WeightsNotArrived or
        AdapterUnsupported where its policy cannot be loaded, EngineBusy or Draining where the engine ends first."""
        ...

    def cancel(self, future: Future[SampleResult], /) -> None:
        """Nobody wants this any more: it is computed no further."""
        ...

    def close(self) -> None:
        """Fail what is unfinished with EngineBusy and let go of everything."""
        ...
