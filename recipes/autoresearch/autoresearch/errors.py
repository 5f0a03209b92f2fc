"""What goes wrong, by what it ends: the research, or one attempt."""


class ResearchError(Exception):
    """The research cannot go on; the text is for the person who started it, and says what to do."""


class AttemptError(Exception):
    """An attempt is over without a comparison; the text says why."""


class Crashed(AttemptError):
    """Its command or its agent failed, or its time was up."""


class Refused(AttemptError):
    """Its edits are not used: it changed what it may not, or nothing. `diff` shows what it did, for people."""

    def __init__(self, reason: str, diff: str = "") -> None:
        super().__init__(reason, diff)
        self.diff = diff

    def __str__(self) -> str:
        return str(self.args[0])
