"""Namespaces: a network, process ids and mounts of one's own, without rights from outside.

Entered once, by the zygote; each child then has a memory disk of its own where the others see an empty folder.
"""

import os
import sys
from pathlib import Path
from typing import Final

from workers.reward.sandbox.syscalls import libc

_NEW_MOUNTS: Final = 0x00020000
_NEW_ALL: Final = _NEW_MOUNTS | 0x10000000 | 0x20000000 | 0x40000000 | 0x08000000  # user, process ids, network, IPC
_PRIVATE: Final = 1 << 18 | 1 << 14  # and everything beneath
_NO_SETUID_NO_DEVICES_NO_PROGRAMS: Final = 0b1110
_PR_SET_PDEATHSIG: Final = 1
_SIGKILL: Final = 9


def enter() -> None:
    """Give this process namespaces; what it forks next is process 1 in them, and all others end with that one.
    Needs a process with a single thread. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    libc("unshare", _NEW_ALL)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    libc("mount", None, b"/", None, _PRIVATE, None)


def own_disk(folder: Path, most_bytes: int, most_files: int) -> None:
    """Mount an empty memory disk on the folder, for this process and what it forks. Raises OSError."""
    libc("unshare", _NEW_MOUNTS)
    options = f"size={most_bytes},nr_inodes={most_files},mode=700".encode()
    libc("mount", b"tmpfs", os.fsencode(folder), b"tmpfs", _NO_SETUID_NO_DEVICES_NO_PROGRAMS, options)


def end_with_parent() -> None:
    """Be killed when the process that forked this one ends. Linux only; elsewhere it does nothing."""
    if sys.platform == "linux":
        libc("prctl", _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
