"""How an op ends, or is refused, in the ledger: it came late or is one too many, its worker lost it, others failed."""

from openrl.domain.errors.branches import CallerError, PassingError


class TurnPassed(CallerError):
    """The run went on without this turn, so it can no longer be executed in order."""

    def __init__(self, run: str, turn: int) -> None:
        super().__init__(run, turn)

    def __str__(self) -> str:
        return f"seq_id: {self.args[0]} has already gone past {self.args[1]}; it came too late to be run in order"


class WornOut(CallerError):
    """The op was claimed again and again, and each time its worker was lost or gave it back."""

    servers_fault = True

    def __init__(self, attempts: int) -> None:
        super().__init__(attempts)

    def __str__(self) -> str:
        return (
            f"given up after {self.args[0]} attempts: each time its worker stopped or gave it back; the logs of the "
            "workers say why"
        )


class MemberFailed(CallerError):
    """An op that this one waited for failed. Facts: the op, and what it failed with."""

    def __init__(self, op: str, why: str) -> None:
        super().__init__(op, why)

    def __str__(self) -> str:
        return f"request {self.args[0]}, which this one waited for, failed: {self.args[1]}"


class OpCancelled(CallerError):
    def __init__(self) -> None:
        super().__init__()

    def __str__(self) -> str:
        return "the request was cancelled"


class TooManyWaiting(PassingError):
    """The tenant's bound on waiting operations is reached."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)

    def __str__(self) -> str:
        return f"{self.args[0]} requests are waiting already; retry when some have finished"


class NoRoomForBatch(PassingError):
    """A batch would pass the tenant's bound. Facts: the bound, how many operations wait, and how many would come."""

    def __init__(self, limit: int, waiting: int, wanted: int) -> None:
        super().__init__(limit, waiting, wanted)

    def __str__(self) -> str:
        limit, waiting, wanted = self.args
        return (
            f"{waiting} requests are waiting already and this would add {wanted}, but at most {limit} may wait; "
            "retry when some have finished, or send fewer at once"
        )


class BatchTooLarge(CallerError):
    """A batch that the tenant's bound never lets in. Facts: the bound, how many operations it is, and its groups."""

    def __init__(self, limit: int, wanted: int, groups: int) -> None:
        super().__init__(limit, wanted, groups)

    def __str__(self) -> str:
        limit, wanted, groups = self.args
        fit = limit * groups // wanted
        mend = f"send at most {fit} prompts at once" if fit else "ask for less"
        return (
            f"prompts: {groups} of them are {wanted} requests, and at most {limit} of a tenant may wait; {mend}, or ask"
            " the operator for more (OPENRL_LEDGER__MAX_WAITING_PER_TENANT)"
        )


class TurnUnsettled(PassingError):
    """A snapshot came before the end of its last turn was written down. Facts: the run and the turn."""

    def __init__(self, run: str, turn: int) -> None:
        super().__init__(run, turn)

    def __str__(self) -> str:
        return f"turn {self.args[1]} of {self.args[0]} has not ended yet"


class ClaimLost(PassingError):
    """Somebody else holds the op now; what this worker computed does not count."""

    def __init__(self, op: str) -> None:
        super().__init__(op)

    def __str__(self) -> str:
        return f"op {self.args[0]} is held by another worker now"


class LeaseLost(PassingError):
    """Somebody else holds the run now; what this worker has of it does not count."""

    def __init__(self, run: str) -> None:
        super().__init__(run)

    def __str__(self) -> str:
        return f"run {self.args[0]} is leased by another worker now"


class LedgerUnreachable(PassingError):
    """Redis is restarting or cut off. Whether the call was carried out is unknown; all of them may be repeated."""

    def __init__(self, why: str) -> None:
        super().__init__(why)

    def __str__(self) -> str:
        return f"the ledger does not answer ({self.args[0]}); retry in a moment"


class LedgerFull(LedgerUnreachable):
    """The broker's memory is used up to what work that is there already needs. Nothing was written."""

    def __str__(self) -> str:
        return f"the ledger takes no more for the moment ({self.args[0]}); retry later, an operator must give it more"
