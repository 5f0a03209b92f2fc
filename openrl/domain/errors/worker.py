"""Why a worker does not take an op now."""

from openrl.domain.errors.branches import PassingError


class EngineBusy(PassingError):
    def __init__(self, why: str) -> None:
        super().__init__(why)

    def __str__(self) -> str:
        return f"the engine cannot take this now: {self.args[0]}"


class NoWorker(PassingError):
    """No worker has announced the model yet; it may be starting."""

    def __init__(self, model: str) -> None:
        super().__init__(model)

    def __str__(self) -> str:
        return f"no worker serves {self.args[0]} yet; it may still be starting"


class Draining(PassingError):
    """The worker is going away and hands the op back; the attempt does not count."""

    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "the worker is shutting down"
