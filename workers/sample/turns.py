"""Who may use what serves one at a time: tenants in turn, and each tenant's in the order in which they came."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A lock that goes round between tenants: whoever asks waits for one use of each other tenant at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: dict[str, deque[threading.Event]] = {}  #: by tenant, the next one first

    @contextmanager
    def mine(self, tenant: str) -> Iterator[None]:
        self._take(tenant)
        try:
            yield
        finally:
            self._pass_on()

    def _take(self, tenant: str) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Event()
            self._waiting.setdefault(tenant, deque()).append(turn)
        turn.wait()

    def _pass_on(self) -> None:
        """To the next tenant, who goes to the end where more of its own wait."""
        with self._lock:
            tenant = next(iter(self._waiting), None)
            if tenant is None:
                self._taken = False
                return
            waiting = self._waiting.pop(tenant)
            waiting.popleft().set()
            if waiting:
                self._waiting[tenant] = waiting
