"""How engines get the files of a policy version, and waiting for a depot that does not answer: a blink of the network
must not fail samples."""

import logging
import time
from collections.abc import Callable, Mapping
from threading import Event
from typing import Final

from openrl.domain.errors import DepotDamaged, DepotUnreachable, EngineBusy
from openrl.domain.ids import DepotKey

log = logging.getLogger(__name__)

#: Reads a policy version's files. KeyError: it is not there. From any thread.
Fetch = Callable[[DepotKey], Mapping[str, bytes]]

FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 4.0


class Patient:
    """Asks `fetch` again for `seconds`, with growing pauses, until the depot answers. From any thread."""

    def __init__(self, fetch: Fetch, seconds: float = 30.0) -> None:
        self._fetch, self._seconds = fetch, seconds
        self._stopped = Event()

    def get(self, key: DepotKey) -> Mapping[str, bytes]:
        """Raises KeyError where the version is not there, EngineBusy where the depot did not answer for so long,
        DepotDamaged where its bytes are wrong however often they are read."""
        until, pause, damaged = time.monotonic() + self._seconds, FIRST_PAUSE_SECONDS, 0
        while True:
            try:
                return self._fetch(key)
            except DepotUnreachable as error:
                damaged += isinstance(error, DepotDamaged)
                if damaged > 1:
                    raise
                log.warning("asked again in %.2f s: %s", pause, error, extra={"action": "fetch_policy"})
                if self._stopped.wait(pause) or time.monotonic() > until:
                    raise EngineBusy(str(error)) from error
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def stop(self) -> None:
        """Whoever waits gives up now."""
        self._stopped.set()
