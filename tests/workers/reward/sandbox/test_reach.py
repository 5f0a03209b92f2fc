"""Whom the model's code may reach, and what it may ask of the kernel, at each level that promises to hold it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from attacking import LIMITS, Attack, refused, result

from workers.reward.execution import Ending
from workers.reward.sandbox.nursery import Nursery


@pytest.fixture
def visited() -> Iterator[dict[str, Any]]:
    """Servers of every kind, and who came."""
    came: list[str] = []
    place = f"/tmp/openrl-test-{os.getpid()}.sock"
    sockets = {
        "tcp": socket.create_server(("127.0.0.1", 0)),
        "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "unix": socket.socket(socket.AF_UNIX),
        "datagram": socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
        "abstract": socket.socket(socket.AF_UNIX),
    }
    sockets["udp"].bind(("127.0.0.1", 0))
    sockets["unix"].bind(place)
    sockets["datagram"].bind(f"{place}.datagram")
    sockets["abstract"].bind(f"\0{place}")
    for name in ("unix", "abstract"):
        sockets[name].listen()
    addresses = {name: one.getsockname() for name, one in sockets.items()}
    yield {"addresses": addresses, "came": came}
    for name, one in sockets.items():
        one.setblocking(False)
        try:
            one.recvfrom(1) if name in ("udp", "datagram") else one.accept()
        except BlockingIOError:
            pass
        else:
            came.append(name)
        one.close()
    Path(place).unlink()
    Path(f"{place}.datagram").unlink()
    assert came == []


@pytest.mark.parametrize("kind", ["tcp", "udp", "unix", "datagram", "abstract"])
def test_nobody_can_be_reached(attack: Attack, visited: dict[str, Any], kind: str) -> None:
    address = visited["addresses"][kind]
    family = "AF_INET" if kind in ("tcp", "udp") else "AF_UNIX"
    type_ = "SOCK_DGRAM" if kind in ("udp", "datagram") else "SOCK_STREAM"
    code = f"""
        import socket
        def attempt():
            one = socket.socket(socket.{family}, socket.{type_})
            one.connect({address!r}); one.send(b'x')
        """
    assert refused(attack(code))


@pytest.mark.parametrize("type_", ["SOCK_DGRAM", "SOCK_SEQPACKET"])
def test_no_pair_of_sockets_can_be_addressed_elsewhere(attack: Attack, visited: dict[str, Any], type_: str) -> None:
    address = visited["addresses"]["datagram"]
    code = f"""
        import socket
        def attempt():
            one, other = socket.socketpair(socket.AF_UNIX, socket.{type_})
            one.sendto(b'x', {address!r})
        """
    assert refused(attack(code))


@pytest.mark.parametrize(
    "way",
    [
        "os.kill(os.getppid(), 9)",
        "os.kill({victim}, 9)",
        "os.kill(-1, 9)",
        "os.killpg(0, 9)",
        "signal.pthread_kill(threading.get_ident(), 9)",
        "signal.pidfd_send_signal(os.pidfd_open({victim}), 9)",
        "fcntl.fcntl(3, fcntl.F_SETOWN, {victim})",
        "fcntl.fcntl(3, fcntl.F_SETSIG, 9)",
        "fcntl.ioctl(3, 0x8901, struct.pack('i', {victim}))",
        "resource.prlimit({victim}, resource.RLIMIT_CPU, (0, 0))",
    ],
)
def test_nobody_can_be_signalled(attack: Attack, way: str) -> None:
    with psutil.Popen(["sleep", "60"]) as victim:
        modules = "import fcntl, os, resource, signal, struct, threading"
        ran = attack(f"{modules}\ndef attempt(): return str({way.format(victim=victim.pid)})")
        assert "error" in result(ran)
        assert victim.is_running() and victim.status() != psutil.STATUS_ZOMBIE
        victim.kill()


@pytest.mark.parametrize(
    "call",
    [
        "ptrace(16, os.getppid(), 0, 0)",
        "ptrace(0, 0, 0, 0)",
        "process_vm_readv(os.getppid(), None, 0, None, 0, 0)",
        "unshare(0x10000000)",
        "setns(0, 0)",
        "mount(b'none', b'.', b'tmpfs', 0, None)",
        "umount(b'/proc')",
        "chroot(b'.')",
        "prctl(1, 0, 0, 0, 0)",
        "personality(0x0400000)",
        "setuid(0)",
        "memfd_create(b'x', 0)",
        "shmget(0, 4096, 0o1600)",
        "msgget(0, 0o1600)",
        "bpf(0, None, 0)",
        "syscall(425, 8, None)",  # io_uring_setup
        "syscall(250, 0, 0, 0, 0, 0)",  # keyctl
        "syscall(323, 0)",  # userfaultfd
        "syscall(298, None, 0, -1, -1, 0)",  # perf_event_open
        "syscall(0x40000000 + 41, 1, 1, 0)",  # socket, as x32 numbers it
        "syscall(435, None, 0)",  # clone3
        "fork()",
        "vfork()",
    ],
)
def test_the_kernel_refuses_what_leads_out(attack: Attack, call: str) -> None:
    code = f"""
        import ctypes, errno, os
        libc = ctypes.CDLL(None, use_errno=True)
        def attempt():
            libc.{call.partition("(")[0]}
            return [libc.{call}, ctypes.get_errno() in (errno.EPERM, errno.ENOSYS)]
        """
    ran = attack(code)
    if "undefined symbol" in result(ran).get("error", ""):
        pytest.skip("not in this C library")
    assert result(ran) == {"value": [-1, True]}


def test_no_call_of_another_architecture_gets_through(attack: Attack) -> None:
    """The 32-bit door of x86-64, through machine code of its own: mov eax, 20 (getpid); int 0x80; ret."""
    if os.uname().machine != "x86_64":
        pytest.skip("x86-64 only")
    ran = attack(
        """
        import ctypes, mmap
        def attempt():
            page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            page.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))
            return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        """
    )
    assert ran["ending"] is Ending.EXITED and "signal 31" in ran["detail"]


def test_a_child_has_no_rights_left(nursery: Nursery) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    child = nursery.fork("score", LIMITS)
    (pid,) = {process.pid for process in psutil.Process().children(recursive=True)} - before
    facts = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    environment = Path(f"/proc/{pid}/environ").read_text()
    child.close()
    assert {facts[name] for name in ("CapEff", "CapPrm", "CapInh")} == {"0" * 16}
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert "OPENRL" not in environment
    assert "KEY" not in environment
