"""The walls around a child, by level, and which level this machine can give."""

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from workers.reward.sandbox import landlock, namespaces, seccomp, syscalls
from workers.reward.sandbox.levels import STRONGEST_FIRST, Level
from workers.reward.sandbox.limits import Limits, apply

DEVICES: Final = tuple(Path("/dev") / name for name in ("null", "zero", "urandom", "random"))
_CAPSET: Final = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION: Final = 0x20080522


def enclose(level: Level, readable: Iterable[Path], folder: Path, limits: Limits) -> None:
    """Put this process, which has one thread, behind the walls for good; `folder` is the folder that it may write to.
    Raises OSError where a wall does not hold."""
    if level is Level.STRONG:
        namespaces.own_disk(folder, limits.disk_bytes, limits.files)
    apply(limits, count_processes=level is Level.STRONG)
    os.chdir(folder)
    if level is Level.LIMITS:
        return
    _drop_capabilities()
    seccomp.no_new_privileges()
    landlock.restrict(readable, folder, DEVICES)
    seccomp.install()


def strongest() -> Level:
    """The strongest level that this machine gives."""
    return next(level for level in STRONGEST_FIRST if lacking(level) is None)


def lacking(level: Level) -> str | None:
    """Why the level cannot be had here; None where it can. Tried for real, in a process that ends."""
    if level is Level.LIMITS:
        return None
    if not syscalls.known():
        return "not Linux on x86-64 or 64-bit ARM"
    if landlock.version() < 1:
        return "the kernel has no Landlock"
    with tempfile.TemporaryDirectory(prefix="openrl-sandbox-") as folder:
        return _tried(lambda: _try(level, Path(folder)))


def _try(level: Level, folder: Path) -> str:
    if level is Level.STRONG:
        try:
            namespaces.enter()
        except OSError as error:
            return f"namespaces are forbidden ({error.strerror})"
        return _tried(lambda: _try_child(level, folder)) or ""
    return _try_child(level, folder)


def _try_child(level: Level, folder: Path) -> str:
    try:
        enclose(level, (), folder, Limits())
    except OSError as error:
        return f"a child cannot be enclosed ({error.strerror})"
    return ""


def _tried(attempt: Callable[[], str]) -> str | None:
    """What a forked process answers; None for nothing."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = "it failed"
        try:
            words = attempt()
        finally:
            os.write(writing, words.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        words = answer.read().decode()
    os.waitpid(pid, 0)
    return words or None


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _drop_capabilities() -> None:
    """Root loses what makes it root; nothing changes for others."""
    none = (ctypes.c_uint32 * 6)()
    number = _CAPSET[os.uname().machine]
    syscalls.call(number, ctypes.byref(_Header(_CAPABILITY_VERSION, 0)), ctypes.byref(none))


def main() -> None:
    """Tell as JSON what is lacking for each level, strongest first."""
    json.dump({level: lacking(level) or "" for level in STRONGEST_FIRST}, sys.stdout)


if __name__ == "__main__":
    main()
