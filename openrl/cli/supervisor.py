"""When a component that died is started again, and when one gives up. Pure: knows no processes and no clock."""

from dataclasses import dataclass, replace
from enum import StrEnum

#: Exit status of a component that an operator must help first (sysexits' EX_CONFIG); its log ends with the sentence.
REFUSED = 78
ERROR_MARK = "error: "  #: begins that sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    first_rest_seconds: float = 0.2
    longest_rest_seconds: float = 10.0
    early_seconds: float = 20.0  #: who dies so soon and was not ready probably always will
    hopeless_deaths: int = 5  #: early deaths in a row
    forgiven_seconds: float = 20.0  #: ready for so long, earlier deaths count no more


class Phase(StrEnum):
    STARTING = "starting"  #: the process runs and cannot do its work yet
    READY = "ready"
    RESTING = "resting"  #: dead; is started again at `rest_until`


class Verdict(StrEnum):
    RESTART = "restart"
    REFUSED = "refused"  #: it told what an operator must mend
    HOPELESS = "hopeless"


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What is remembered of a component over its restarts. Times are seconds of one monotonic clock."""

    phase: Phase
    started_at: float
    ready_at: float | None = None  #: of the present process
    was_ready: bool = False  #: any process of it ever was
    deaths: int = 0  #: in a row
    early_deaths: int = 0  #: in a row
    rest_until: float = 0.0


def born(now: float) -> Life:
    return Life(phase=Phase.STARTING, started_at=now)


def ready(life: Life, now: float) -> Life:
    return replace(life, phase=Phase.READY, ready_at=now, was_ready=True, early_deaths=0)


def died(life: Life, exit_status: int, now: float, rules: Rules) -> tuple[Verdict, Life]:
    """What to do after a death, and the life that goes on.

    A refusal counts before it was ever ready only: later it is an accident, such as a broker that restarts too.
    """
    early = life.ready_at is None and now - life.started_at < rules.early_seconds
    forgiven = life.ready_at is not None and now - life.ready_at >= rules.forgiven_seconds
    deaths = 1 if forgiven else life.deaths + 1
    early_deaths = life.early_deaths + 1 if early else 0
    resting = replace(
        life,
        phase=Phase.RESTING,
        ready_at=None,
        deaths=deaths,
        early_deaths=early_deaths,
        rest_until=now + rest_seconds(deaths, rules),
    )
    if exit_status == REFUSED and not life.was_ready:
        return Verdict.REFUSED, resting
    if early_deaths >= rules.hopeless_deaths:
        return Verdict.HOPELESS, resting
    return Verdict.RESTART, resting


def reborn(life: Life, now: float) -> Life:
    return replace(life, phase=Phase.STARTING, started_at=now)


def due(life: Life, now: float) -> bool:
    """Whether it is time to start it again."""
    return life.phase is Phase.RESTING and now >= life.rest_until


def rest_seconds(deaths: int, rules: Rules) -> float:
    """Doubles with every death in a row."""
    return min(rules.longest_rest_seconds, rules.first_rest_seconds * 2.0 ** (deaths - 1))


def in_words(exit_status: int) -> str:
    """How a process ended; negative is the signal that ended it."""
    return f"killed by signal {-exit_status}" if exit_status < 0 else f"stopped with exit status {exit_status}"
