"""Errors of scoring."""

from openrl.domain.errors.branches import CallerError, OperatorError, PassingError


class GraderFailed(PassingError):
    """The process that scored died, hung or said nonsense: no score. Facts: the field it was at, and what happened."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)
        self.where, self.why = where, why

    def __str__(self) -> str:
        return f"{self.where}: the grader {self.why}; no score was made up"


class GraderGaveUp(CallerError):
    """It failed in every attempt. Facts: the last failure's, and how many attempts there were."""

    servers_fault = True

    def __init__(self, where: str, why: str, attempts: int) -> None:
        super().__init__(where, why, attempts)

    def __str__(self) -> str:
        where, why, attempts = self.args
        return f"{where}: the grader {why}; given up after {attempts} attempts, no score was made up"


class GraderOverdue(CallerError):
    """The group's time was over before the function came to a text. Facts: the function's name, and the seconds."""

    servers_fault = True

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name, seconds)

    def __str__(self) -> str:
        name, seconds = self.args
        return f"{name}: the group's {seconds:g} s were over before its turn"


class RewardFailed(CallerError):
    """A bug of the reward function. Facts: its name, the field it was at, and its error."""

    servers_fault = True

    def __init__(self, name: str, where: str, error: str) -> None:
        super().__init__(name, where, error)

    def __str__(self) -> str:
        return f"{self.args[1]}: reward function {self.args[0]!r} failed: {self.args[2]}"


class RewardBroken(CallerError):
    """The function is installed but cannot be used. Facts: its name, and what happened when it was loaded."""

    servers_fault = True

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)

    def __str__(self) -> str:
        return f"reward: {self.args[0]!r} is installed but could not be loaded: {self.args[1]}"


class RewardWithheld(CallerError):
    """The function is not for clients of this installation. Facts: the field that names it, its name, and why."""

    def __init__(self, field: str, name: str, why: str) -> None:
        super().__init__(field, name, why)

    def __str__(self) -> str:
        field, name, why = self.args
        return f"{field}: {name!r} is not offered here: {why}"


class AnswerUnreadable(CallerError):
    """No score can be read in what a judge said. Fact: the answer, or why there is none."""

    servers_fault = True

    def __init__(self, answer: str) -> None:
        super().__init__(answer)

    def __str__(self) -> str:
        return f"no score can be read in the judge's answer {self.args[0]!r}; none was made up"


class SandboxFailed(OperatorError):
    """Children that score cannot be started."""

    def __init__(self, why: str) -> None:
        super().__init__(why)

    def __str__(self) -> str:
        return f"the sandbox of rewards cannot be started: {self.args[0]}"
