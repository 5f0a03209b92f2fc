"""The files that `openrl serve` keeps in the data directory: lock, status, and the local tenant's key."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openrl.cli.errors import AlreadyServing, NotServing
from openrl.domain.errors import SettingInvalid
from openrl.domain.tenant import KEY_START, new_secret


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the data directory, which is made if absent. Raises AlreadyServing, or SettingInvalid where it cannot be."""
    path = home / "serve.lock"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = path.open("a+")
    except OSError as error:
        problem = f"{home} cannot be written ({error.strerror}); give --data-dir another folder"
        raise SettingInvalid("OPENRL_DATA_DIR", problem) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            raise AlreadyServing(str(home), f" (process {holder})" if holder else "") from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def write_status(home: Path, **facts: Any) -> None:
    """In one step, for this user's eyes only: it holds the broker's password."""
    _write_private(home / "serve.json", json.dumps({"pid": os.getpid()} | facts, indent=2) + "\n")


def read_status(home: Path) -> dict[str, Any]:
    """Raises NotServing; also where a killed `serve` left the file behind."""
    try:
        status: dict[str, Any] = json.loads((home / "serve.json").read_text())
    except FileNotFoundError:
        raise NotServing(str(home)) from None
    try:
        os.kill(int(status["pid"]), 0)
    except ProcessLookupError:
        raise NotServing(str(home)) from None
    return status


def remove_status(home: Path) -> None:
    (home / "serve.json").unlink(missing_ok=True)


def local_secret(home: Path, given: str | None) -> str:
    """The local tenant's API key: `given`, else the one of an earlier start, else a new one; kept for the next start.

    Raises SettingInvalid for a key that the Tinker SDK would refuse.
    """
    path = home / "local_key"
    if given is not None and not given.startswith(KEY_START):
        raise SettingInvalid("OPENRL_API_KEY", f"an API key must start with {KEY_START}, as the Tinker SDK insists")
    if given is None and path.is_file():
        return path.read_text().strip()
    return _keep(path, given or new_secret())


def new_local_secret(home: Path) -> str:
    """A new key in place of the one of an earlier start."""
    return _keep(home / "local_key", new_secret())


def _keep(path: Path, secret: str) -> str:
    _write_private(path, secret + "\n")
    return secret


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)
