"""The system calls that a child may make, by processor: what Python needs to compute, to use threads, pipes and files.

Not among them: making processes and running programs, sockets that reach anything, signals to others, tracing, other
processes' memory, modes and owners of files, mounts, namespaces, memory files, kernel modules, keys.
"""

import ctypes
import os
import platform
from typing import Final

# fmt: off
_X86_64: Final = {
    "read": 0, "write": 1, "readv": 19, "writev": 20, "pread64": 17, "pwrite64": 18, "preadv": 295, "pwritev": 296,
    "preadv2": 327, "pwritev2": 328, "close": 3, "close_range": 436, "fstat": 5, "stat": 4, "lstat": 6,
    "newfstatat": 262, "statx": 332, "statfs": 137, "fstatfs": 138, "lseek": 8, "access": 21, "faccessat": 269,
    "faccessat2": 439, "open": 2, "openat": 257, "openat2": 437, "creat": 85, "getdents": 78, "getdents64": 217,
    "getcwd": 79, "chdir": 80, "fchdir": 81, "rename": 82, "renameat": 264, "renameat2": 316, "mkdir": 83,
    "mkdirat": 258, "rmdir": 84, "link": 86, "linkat": 265, "unlink": 87, "unlinkat": 263, "symlink": 88,
    "symlinkat": 266, "readlink": 89, "readlinkat": 267, "umask": 95, "truncate": 76, "ftruncate": 77,
    "fallocate": 285, "fadvise64": 221, "fsync": 74, "fdatasync": 75, "flock": 73, "fcntl": 72, "dup": 32, "dup2": 33,
    "dup3": 292, "pipe": 22, "pipe2": 293, "ioctl": 16, "sendfile": 40, "copy_file_range": 326, "mmap": 9,
    "mprotect": 10, "munmap": 11, "mremap": 25, "madvise": 28, "brk": 12, "mincore": 27, "msync": 26,
    "membarrier": 324, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "rt_sigtimedwait": 128,
    "rt_sigsuspend": 130, "rt_sigpending": 127, "sigaltstack": 131, "restart_syscall": 219, "pause": 34, "select": 23,
    "pselect6": 270, "poll": 7, "ppoll": 271, "epoll_create": 213, "epoll_create1": 291, "epoll_ctl": 233,
    "epoll_wait": 232, "epoll_pwait": 281, "epoll_pwait2": 441, "eventfd2": 290, "sendto": 44, "recvfrom": 45,
    "shutdown": 48, "getsockname": 51, "getpeername": 52, "getsockopt": 55, "socketpair": 53, "futex": 202,
    "futex_waitv": 449, "set_robust_list": 273, "get_robust_list": 274, "set_tid_address": 218, "rseq": 334,
    "clone": 56, "exit": 60, "exit_group": 231, "sched_yield": 24, "sched_getaffinity": 204, "gettid": 186,
    "getpid": 39, "getppid": 110, "getuid": 102, "geteuid": 107, "getgid": 104, "getegid": 108, "getresuid": 118,
    "getresgid": 120, "getgroups": 115, "getpgrp": 111, "getpgid": 121, "getsid": 124, "nanosleep": 35,
    "clock_nanosleep": 230, "clock_gettime": 228, "clock_getres": 229, "gettimeofday": 96, "time": 201, "times": 100,
    "alarm": 37, "setitimer": 38, "getitimer": 36, "timer_create": 222, "timer_settime": 223, "timer_gettime": 224,
    "timer_delete": 226, "timerfd_create": 283, "timerfd_settime": 286, "timerfd_gettime": 287, "uname": 63,
    "sysinfo": 99, "getrlimit": 97, "prlimit64": 302, "getrusage": 98, "getrandom": 318, "arch_prctl": 158,
    "getcpu": 309,
}
_AARCH64: Final = {
    "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68, "preadv": 69, "pwritev": 70,
    "preadv2": 286, "pwritev2": 287, "close": 57, "close_range": 436, "fstat": 80, "newfstatat": 79, "statx": 291,
    "statfs": 43, "fstatfs": 44, "lseek": 62, "faccessat": 48, "faccessat2": 439, "openat": 56, "openat2": 437,
    "getdents64": 61, "getcwd": 17, "chdir": 49, "fchdir": 50, "renameat": 38, "renameat2": 276, "mkdirat": 34,
    "linkat": 37, "unlinkat": 35, "symlinkat": 36, "readlinkat": 78, "umask": 166, "truncate": 45, "ftruncate": 46,
    "fallocate": 47, "fadvise64": 223, "fsync": 82, "fdatasync": 83, "flock": 32, "fcntl": 25, "dup": 23, "dup3": 24,
    "pipe2": 59, "ioctl": 29, "sendfile": 71, "copy_file_range": 285, "mmap": 222, "mprotect": 226, "munmap": 215,
    "mremap": 216, "madvise": 233, "brk": 214, "mincore": 232, "msync": 227, "membarrier": 283, "rt_sigaction": 134,
    "rt_sigprocmask": 135, "rt_sigreturn": 139, "rt_sigtimedwait": 137, "rt_sigsuspend": 133, "rt_sigpending": 136,
    "sigaltstack": 132, "restart_syscall": 128, "pselect6": 72, "ppoll": 73, "epoll_create1": 20, "epoll_ctl": 21,
    "epoll_pwait": 22, "epoll_pwait2": 441, "eventfd2": 19, "sendto": 206, "recvfrom": 207, "shutdown": 210,
    "getsockname": 204, "getpeername": 205, "getsockopt": 209, "socketpair": 199, "futex": 98, "futex_waitv": 449,
    "set_robust_list": 99, "get_robust_list": 100, "set_tid_address": 96, "rseq": 293, "clone": 220, "exit": 93,
    "exit_group": 94, "sched_yield": 124, "sched_getaffinity": 123, "gettid": 178, "getpid": 172, "getppid": 173,
    "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "getresuid": 148, "getresgid": 150, "getgroups": 158,
    "getpgid": 155, "getsid": 156, "nanosleep": 101, "clock_nanosleep": 115, "clock_gettime": 113, "clock_getres": 114,
    "gettimeofday": 169, "times": 153, "setitimer": 103, "getitimer": 102, "timer_create": 107, "timer_settime": 110,
    "timer_gettime": 108, "timer_delete": 111, "timerfd_create": 85, "timerfd_settime": 86, "timerfd_gettime": 87,
    "uname": 160, "sysinfo": 179, "getrlimit": 163, "prlimit64": 261, "getrusage": 165, "getrandom": 278,
    "getcpu": 168,
}
# fmt: on

#: By `platform.machine()`: the audit word of the architecture, and its calls.
ARCHITECTURES: Final = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}
#: Calls younger than the ones that all architectures number alike are unknown to the C library's older ways, and it
#: takes these where the kernel says that it does not know a call.
COMMON_FROM: Final = 424

_libc = ctypes.CDLL(None, use_errno=True)


def known() -> bool:
    """Whether this processor's calls are listed here."""
    return platform.system() == "Linux" and platform.machine() in ARCHITECTURES


def call(number: int, *arguments: object) -> int:
    """A system call by number. Raises OSError."""
    return checked(_libc.syscall(ctypes.c_long(number), *arguments))


def libc(name: str, *arguments: object) -> int:
    """A function of the C library that answers -1 where it fails. Raises OSError."""
    return checked(getattr(_libc, name)(*arguments))


def checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer
