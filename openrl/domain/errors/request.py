"""What is wrong with a request by itself, before anything is looked up or written down."""

from openrl.domain.errors.branches import CallerError


class FieldInvalid(CallerError):
    """A field of the request breaks a rule. Facts: the field's path, and what is wrong with it and how to mend it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field, self.problem = field, problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class BodyInvalid(CallerError):
    """The body could not be read at all."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)

    def __str__(self) -> str:
        return f"request body: {self.args[0]}"


class BodyTooLarge(CallerError):
    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)

    def __str__(self) -> str:
        return f"request body: larger than {self.args[0] / 1e6:.0f} MB; send fewer or shorter datums per request"


class KeyRejected(CallerError):
    def __init__(self, problem: str) -> None:
        super().__init__(problem)

    def __str__(self) -> str:
        return f"X-API-Key: {self.args[0]}"


class ModelUnknown(CallerError):
    """The base model is not served. Facts: the name, and what is served."""

    def __init__(self, name: str, served: tuple[str, ...]) -> None:
        super().__init__(name, served)

    def __str__(self) -> str:
        name, served = self.args
        known = ", ".join(served) or "none: no worker is up"
        return f"base_model: {name!r} is not served here; served models: {known}"


class RewardUnknown(CallerError):
    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)

    def __str__(self) -> str:
        return f"reward: no reward function {self.args[0]!r}; known: {', '.join(self.args[1])}"
