"""What is wrong with the installation: its settings, base models, catalog or depot."""

from openrl.domain.errors.branches import OperatorError


class SettingInvalid(OperatorError):
    """A setting is unknown or wrong. Facts: its name, and what to do."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(name, problem)

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


class BaseModelMissing(OperatorError):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)

    def __str__(self) -> str:
        return f"base model {self.args[0]!r} cannot be loaded: {self.args[1]}"


class ModelUnsupported(OperatorError):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)

    def __str__(self) -> str:
        return f"base model {self.args[0]!r} is not supported: {self.args[1]}"


class CatalogUnreachable(OperatorError):
    """The database does not answer, or not as ours. Facts: its URL without the password, and what it said."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)

    def __str__(self) -> str:
        return f"catalog {self.args[0]} cannot be used: {self.args[1]}"


class DepotUnreachable(OperatorError):
    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)

    def __str__(self) -> str:
        return f"depot {self.args[0]} cannot be used: {self.args[1]}"


class DepotDamaged(DepotUnreachable):
    """It answers with other bytes than were written."""


class BytesLost(OperatorError):
    """A row refers to bytes that are no longer in the depot."""

    def __init__(self, key: str) -> None:
        super().__init__(key)

    def __str__(self) -> str:
        return (
            f"depot: {self.args[0]} is gone although a row refers to it; "
            "was the depot emptied, or is OPENRL_DEPOT_URL not the same everywhere?"
        )
