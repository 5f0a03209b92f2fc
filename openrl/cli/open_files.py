"""How many files and connections a process may have open. Systems begin with 1024 or 256, which a few clients with
their parked polls use up."""

import resource
from contextlib import suppress
from typing import Final

#: The second is all that macOS grants.
WANTED: Final = (65_536, 10_240)


def allow_many() -> None:
    """Raise this process's own limit as far as the system lets it; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in WANTED:
        granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or soft >= granted:
            return
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
            return
