"""A filter of system calls for this process and all that come of it: what is not listed is refused.

Written as the kernel's own classic BPF. A call that is refused answers EPERM, or ENOSYS where the C library then tries
an older one; nothing is killed, so that the code at fault gets an exception that it can tell of.
"""

import ctypes
import errno
import platform
import socket
from typing import Final

from workers.reward.sandbox.syscalls import ARCHITECTURES, COMMON_FROM, libc

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2

_LOAD: Final = 0x20  #: a word of the call's description, by its offset
_AND: Final = 0x54
_IF_EQUAL: Final = 0x15
_IF_AT_LEAST: Final = 0x35
_ANSWER: Final = 0x06

_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in the description of a call
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EPERM
_UNKNOWN: Final = 0x00050000 | errno.ENOSYS
_KILL: Final = 0x80000000

_CLONE_THREAD: Final = 0x00010000
#: `fcntl` and `ioctl` words that name a process to be signalled.
_SIGNALLING_FCNTL: Final = (8, 10, 15)
_SIGNALLING_IOCTL: Final = (0x8901, 0x8902)

Step = tuple[int, int, int, int]  #: operation, jump if true, jump if false, operand


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("operand", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Instruction)))


def no_new_privileges() -> None:
    """Running a program can never give this process more rights again. Raises OSError."""
    libc("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def install() -> None:
    """Let the filter judge every call from now on; needs `no_new_privileges`. Raises OSError."""
    steps = program()
    array = (_Instruction * len(steps))(*(_Instruction(*step) for step in steps))
    libc("prctl", _PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_Program(len(steps), array)), 0, 0)


def program() -> list[Step]:
    """The filter for this processor."""
    word, calls = ARCHITECTURES[platform.machine()]
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_IF_EQUAL, 1, 0, word), (_ANSWER, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    guarded = {name: number for name, number in calls.items() if name in _GUARDS}
    for name in calls.keys() - guarded.keys():
        steps += [(_IF_EQUAL, 0, 1, calls[name]), (_ANSWER, 0, 0, _ALLOW)]
    for name, number in guarded.items():
        guard = _GUARDS[name]
        steps += [(_IF_EQUAL, 0, len(guard), number), *guard]
    return [*steps, (_IF_AT_LEAST, 0, 1, COMMON_FROM), (_ANSWER, 0, 0, _UNKNOWN), (_ANSWER, 0, 0, _REFUSE)]


def _argument(at: int) -> Step:
    """The lower half of an argument, by its place."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * at)


def _only(*tests: list[Step]) -> list[Step]:
    """Allowed where all tests hold; each is steps that end in a comparison, whose jumps are set here."""
    steps = [step for test in tests for step in test]
    last = len(steps)  # where the answer "allow" will stand; "refuse" stands behind it
    for at, (code, _, _, operand) in enumerate(steps):
        if code == _IF_EQUAL:
            steps[at] = (code, 0, last - at, operand)
    return [*steps, (_ANSWER, 0, 0, _ALLOW), (_ANSWER, 0, 0, _REFUSE)]


def _none_of(at: int, words: tuple[int, ...]) -> list[Step]:
    """Allowed where an argument is none of the words."""
    tests = [(_IF_EQUAL, len(words) - place, 0, word) for place, word in enumerate(words)]
    return [_argument(at), *tests, (_ANSWER, 0, 0, _ALLOW), (_ANSWER, 0, 0, _REFUSE)]


_GUARDS: Final[dict[str, list[Step]]] = {
    # Threads, no processes.
    "clone": _only([_argument(0), (_AND, 0, 0, _CLONE_THREAD), (_IF_EQUAL, 0, 0, _CLONE_THREAD)]),
    # Pairs that nothing can be addressed through.
    "socketpair": _only(
        [_argument(0), (_IF_EQUAL, 0, 0, socket.AF_UNIX)],
        [_argument(1), (_AND, 0, 0, 0xF), (_IF_EQUAL, 0, 0, socket.SOCK_STREAM)],
    ),
    # Limits of this process.
    "prlimit64": _only([_argument(0), (_IF_EQUAL, 0, 0, 0)]),
    "fcntl": _none_of(1, _SIGNALLING_FCNTL),
    "ioctl": _none_of(1, _SIGNALLING_IOCTL),
}
