"""Landlock: what of the file system this process and all that come of it may still reach, whoever it runs as.

Works without rights of any kind. A kernel that knows less of it forbids less: version 1 has files and folders, later
ones add truncation, devices, TCP, and signals and abstract sockets to whoever is outside.
"""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from workers.reward.sandbox.syscalls import call

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_GIVE_VERSION: Final = 1
_PATH_BENEATH: Final = 1

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE: Final = 1 << 4 | 1 << 5
_MAKE_DIR, _MAKE_FILE, _MAKE_LINK = 1 << 7, 1 << 8, 1 << 12
_REFER, _TRUNCATE, _DEVICE = 1 << 13, 1 << 14, 1 << 15

_READ: Final = _READ_FILE | _READ_DIR
_OWN: Final = _READ | _WRITE_FILE | _REMOVE | _MAKE_DIR | _MAKE_FILE | _MAKE_LINK | _REFER | _TRUNCATE
_OF_FILES: Final = _WRITE_FILE | _READ_FILE | _TRUNCATE  #: of these, what can be given for a file
_ALL_FILES: Final = (1 << 13) - 1  #: of version 1
_ALL_TCP: Final = 0b11
_ALL_SCOPES: Final = 0b11


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("tcp", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """What the kernel knows of Landlock; 0 for nothing."""
    try:
        return call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_GIVE_VERSION))
    except OSError:
        return 0


def restrict(readable: Iterable[Path], own: Path, devices: Iterable[Path]) -> None:
    """Forbid all but reading beneath `readable`, everything in the folder `own`, and reading and writing `devices`.
    Needs `no_new_privileges`. Raises OSError."""
    known = version()
    handled = _ALL_FILES | sum(bit for bit, since in ((_REFER, 2), (_TRUNCATE, 3), (_DEVICE, 5)) if known >= since)
    rules = _Rules(handled, _ALL_TCP if known >= 4 else 0, _ALL_SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = call(_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path in readable:
            _allow(ruleset, path, _READ & handled)
        for path in devices:
            _allow(ruleset, path, (_READ_FILE | _WRITE_FILE) & handled)
        _allow(ruleset, own, _OWN & handled)
        call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    """A path that is not there has nothing to be allowed."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        given = rights if path.is_dir() else rights & _OF_FILES
        rule = _Beneath(given, place)
        call(_ADD, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(place)
