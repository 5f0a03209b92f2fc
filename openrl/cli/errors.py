"""What keeps `openrl` from starting or running on this machine, told to its operator."""

from openrl.domain.errors import OperatorError


class BrokerUnreachable(OperatorError):
    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)

    def __str__(self) -> str:
        return (
            f"no broker at {self.args[0]} ({self.args[1]}); start one there, correct OPENRL_REDIS_URL, "
            "or unset it to use the embedded server"
        )


class BrokerMissing(OperatorError):
    def __init__(self, why: str) -> None:
        super().__init__(why)

    def __str__(self) -> str:
        return (
            f"no embedded broker: {self.args[0]}; install valkey-server or redis-server, "
            "or set OPENRL_REDIS_URL to a running Redis or Valkey"
        )


class PortTaken(OperatorError):
    def __init__(self, what: str, port: int) -> None:
        super().__init__(what, port)

    def __str__(self) -> str:
        return f"{self.args[0]}: port {self.args[1]} is taken; stop what listens there or choose another port"


class ModelWontFit(OperatorError):
    def __init__(self, needed_gb: float, free_gb: float) -> None:
        super().__init__(needed_gb, free_gb)

    def __str__(self) -> str:
        needed_gb, free_gb = self.args
        return (
            f"the base model needs about {needed_gb:.1f} GB of memory and {free_gb:.1f} GB are free; "
            "choose a smaller one or free memory"
        )


EXTRAS = {"opentelemetry": "otel"}  #: by package, where it is not `serve`


class PackageMissing(OperatorError):
    def __init__(self, package: str) -> None:
        super().__init__(package)

    def __str__(self) -> str:
        extra = EXTRAS.get(self.args[0], "serve")
        return f"the Python package {self.args[0]} is not installed; run: pip install 'openrl[{extra}]'"


class AlreadyServing(OperatorError):
    """Facts: the data directory, and what is known of its holder (a sentence part, may be empty)."""

    def __init__(self, home: str, holder: str) -> None:
        super().__init__(home, holder)

    def __str__(self) -> str:
        home, holder = self.args
        return f"data directory {home} is in use by another `openrl serve`{holder}; stop it or give --data-dir another"


class ComponentDied(OperatorError):
    """A process of ours that would not stay up. Facts: its name, what happened, its log, and the log's last lines."""

    def __init__(self, name: str, what: str, log: str, tail: tuple[str, ...]) -> None:
        super().__init__(name, what, log, tail)

    def __str__(self) -> str:
        name, what, log, tail = self.args
        return "\n".join([f"{name}: {what}; the end of {log}:", *(f"    {line}" for line in tail)])


class ComponentRefused(OperatorError):
    """A process of ours that said what an operator must mend. Facts: its name, and its own sentence."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(name, sentence)

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


class NotReached(OperatorError):
    """A service that was asked does not answer, or refuses. Fact: its client's sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)

    def __str__(self) -> str:
        return str(self.args[0])


class TrialFailed(OperatorError):
    """A service that was tried out did not do its work. Fact: what happened."""

    def __init__(self, what: str) -> None:
        super().__init__(what)

    def __str__(self) -> str:
        return str(self.args[0])


class NotServing(OperatorError):
    def __init__(self, home: str) -> None:
        super().__init__(home)

    def __str__(self) -> str:
        return f"nothing is served from {self.args[0]}; start it with: openrl serve"
