"""What a process had of the machine, as Linux tells it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Spent:
    ran_seconds: float  #: the processor was its own
    stood_seconds: float  #: it was ready to run, and others ran; up to when it last ran
    ready: bool  #: it runs, or stands ready


def spent(number: int) -> Spent | None:
    """By the process's first thread; None where the system does not tell."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2][:1]
        ran, stood, _ = Path(f"/proc/{number}/schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return Spent(int(ran) / 1e9, int(stood) / 1e9, state == "R")


def own_number() -> int:
    """This process's, as it is known where `/proc` was mounted, outside of its namespaces; 0 where there is none."""
    try:
        return int(Path("/proc/self").readlink().name)
    except (OSError, ValueError):
        return 0
