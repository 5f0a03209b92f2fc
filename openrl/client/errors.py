"""What a caller of the client can catch.

ClientError
├── KeyMissing          no API key was given
├── RequestRefused      the server says that the request is wrong
├── WorkFailed          the request was taken, and carrying it out failed
├── BatchFailed         a batch of rollouts that was to fail with its first loss did
├── TinkerMissing       datums were asked for without the SDK that they are for
└── ServiceUnreachable  no answer for as long as the client was told to be patient
"""


class ClientError(Exception):
    """The root of what the client raises on purpose."""


class KeyMissing(ClientError):
    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "no API key; pass api_key= or set OPENRL_API_KEY (or TINKER_API_KEY)"


class RequestRefused(ClientError):
    """Facts: the status code, and what the server says of it."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail

    def __str__(self) -> str:
        return f"{self.detail} (HTTP {self.status})"


class WorkFailed(ClientError):
    """Facts: the error's name, its message, and who can put it right (`user` or `server`)."""

    def __init__(self, error: str, message: str, category: str) -> None:
        super().__init__(error, message, category)
        self.error, self.message, self.category = error, message, category

    def __str__(self) -> str:
        return f"{self.error}: {self.message}"


class BatchFailed(ClientError):
    """Facts: the batch, and how many rollouts were dropped, by the error that cost them."""

    def __init__(self, batch_id: str, dropped_by_reason: dict[str, int]) -> None:
        super().__init__(batch_id, dropped_by_reason)
        self.batch_id, self.dropped_by_reason = batch_id, dropped_by_reason

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} by {error}" for error, count in self.dropped_by_reason.items())
        return f"batch {self.batch_id} failed with a rollout that could not be had; dropped: {reasons}"


class TinkerMissing(ClientError):
    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "datums are tinker's, and the package tinker is not installed; run: pip install tinker"


class ServiceUnreachable(ClientError):
    """Facts: the address, for how long it was tried, and the last thing seen."""

    def __init__(self, url: str, seconds: float, last: str) -> None:
        super().__init__(url, seconds, last)

    def __str__(self) -> str:
        url, seconds, last = self.args
        return f"{url} did not answer for {seconds:.0f} s (last: {last}); is it up, and is OPENRL_BASE_URL right?"
