"""A command that `openrl serve` runs once everything is ready, and ends with."""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from openrl.cli.child import kill_group
from openrl.cli.orphans import Watcher
from openrl.domain.errors import SettingInvalid

GRACE_SECONDS = 5.0


class Program:
    """Has the terminal to itself; finds the server through TINKER_BASE_URL and TINKER_API_KEY."""

    def __init__(self, command: Sequence[str], own: Mapping[str, str], *, url: str, secret: str) -> None:
        """Starts it. Raises SettingInvalid where there is no such command."""
        where = {"TINKER_BASE_URL": url, "TINKER_API_KEY": secret}
        try:
            self._process = subprocess.Popen(command, env={**own, **where}, start_new_session=True)
        except OSError as error:
            raise SettingInvalid("COMMAND", f"{command[0]} cannot be run ({error.strerror})") from error

    def watched_by(self, watcher: Watcher, rank: int) -> None:
        watcher.watch(self._process.pid, rank, GRACE_SECONDS)

    @property
    def exit_status(self) -> int | None:
        """None while it runs; as a shell tells it afterwards (128 + signal)."""
        status = self._process.poll()
        return 128 - status if status is not None and status < 0 else status

    def stop(self, watcher: Watcher) -> None:
        """End it with everything it started."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        kill_group(self._process.pid)
        self._process.wait()
        watcher.forget(self._process.pid)
