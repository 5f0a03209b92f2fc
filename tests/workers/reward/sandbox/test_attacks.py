"""What the model's code may try, at each level that promises to hold it."""

import json
import os
import signal
import socket
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from openrl.domain.errors import GraderFailed
from workers.reward.execution import Ending
from workers.reward.grading import _run_in
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.nursery import Child, Nursery

Ran = dict[str, Any]
Attack = Callable[..., Ran]

LIMITS = Limits(
    memory_bytes=256 << 20, cpu_seconds=10, file_bytes=1 << 20, disk_bytes=4 << 20, files=200, open_files=32
)


#: Makes what an attack came to the answer of a reward function sent as source.
TOLD = """
import json as _json
from openrl.rewards import FieldInvalid as _Told
def score(text, context, params):
    try: told = {"value": attempt()}
    except Exception as error: told = {"error": f"{type(error).__name__}: {error}"}
    raise _Told("told", _json.dumps(told))
"""


class Source:
    """A child that scores, asked as one that runs the model's code is."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def __getattr__(self, name: str) -> Any:
        return getattr(self._child, name)

    def ask(self, order: Ran, until: float) -> None:
        params = {"source": order["code"] + TOLD}
        self._child.ask({"reward": "source", "text": "", "context": {}, "params": params}, until)

    def answer(self, *how: Any) -> Ran:
        _, told = self._child.answer(*how).get("invalid", ["", "null"])
        return {"results": [json.loads(told)]}


@pytest.fixture(params=["execute", "source"])
def attack(nursery: Nursery, request: pytest.FixtureRequest) -> Attack:
    """Runs code, then `attempt()`, in a child of its own; what becomes of it. The code is the model's, or that of a
    reward function sent with a request."""

    def attack(code: str, *, seconds: float = 10.0) -> Ran:
        child: Any = nursery.fork("execute", LIMITS) if request.param == "execute" else _source(nursery)
        order = {"code": textwrap.dedent(code), "calls": [{"call": "attempt"}]}
        on_disk = nursery.level is not Level.STRONG
        try:
            return _run_in(child, order, seconds, LIMITS, "texts[0]", on_disk=on_disk)
        finally:
            child.close()

    return attack


def _source(nursery: Nursery) -> Source:
    return Source(nursery.fork("score", LIMITS))


def result(ran: Ran) -> dict[str, Any]:
    assert ran["ending"] is Ending.ANSWERED, ran
    only: dict[str, Any] = ran["results"][0]
    return only


def refused(ran: Ran) -> bool:
    """An exception that tells of the system's refusal."""
    return result(ran).get("error", "").startswith(("PermissionError", "BlockingIOError", "OSError: [Errno 38]"))


def test_what_is_harmless_works(attack: Attack) -> None:
    ran = attack(
        """
        import asyncio, decimal, json, math, random, re, sqlite3, statistics, tempfile, threading, zoneinfo
        def attempt():
            done = []
            thread = threading.Thread(target=lambda: done.append(1)); thread.start(); thread.join()
            async def wait(): await asyncio.sleep(0.001); return 2
            with tempfile.TemporaryDirectory() as folder:
                with open(folder + "/f", "w") as file: file.write("3")
                with open(folder + "/f") as file: done += [asyncio.run(wait()), int(file.read())]
            return [*done, sqlite3.connect(":memory:").execute("select 4").fetchone()[0]]
        """
    )
    assert result(ran) == {"value": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    "way",
    [
        "os.fork()",
        "[os.fork() for _ in range(10_000)]",
        "os.forkpty()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "subprocess.run(['/bin/true'])",
        "os.execv('/bin/true', ['true'])",
        "os.system('true') == 0 or os.fork()",
    ],
)
def test_no_process_is_begun_and_no_program_run(attack: Attack, way: str) -> None:
    assert refused(attack(f"import os, subprocess\ndef attempt(): return {way}"))


def test_threads_are_bounded(attack: Attack) -> None:
    ran = attack(
        """
        import threading, time
        def attempt():
            for count in range(100_000):
                try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
                except Exception: return count < 1000
        """
    )
    assert result(ran) == {"value": True}


def test_memory_is_bounded(attack: Attack) -> None:
    assert result(attack("def attempt(): return len(bytearray(1 << 30))"))["error"].startswith("MemoryError")
    creeping = "def attempt():\n    kept = []\n    while True: kept.append(bytes(1 << 20))"
    assert "MemoryError" in result(attack(creeping))["error"]


@pytest.mark.parametrize(
    "loop",
    ["while True: pass", "re.match('(a|a)*$', 'a' * 60 + 'b')", "10 ** 10 ** 10", "time.sleep(1000)"],
)
def test_what_never_ends_is_ended(attack: Attack, loop: str) -> None:
    began = time.monotonic()
    assert attack(f"import re, time\ndef attempt():\n    {loop}", seconds=0.3)["ending"] is Ending.TIME
    assert time.monotonic() - began < 5


def test_time_of_the_processor_is_bounded_too(nursery: Nursery) -> None:
    """Even where its signal is caught."""
    limits = Limits(cpu_seconds=1)
    child = nursery.fork("execute", limits)
    code = "import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass"
    ran = _run_in(child, {"code": code, "calls": [{"eval": "1"}]}, 20.0, limits, "texts[0]", on_disk=False)
    child.close()
    assert ran["ending"] is Ending.TIME


def test_a_file_is_bounded(attack: Attack) -> None:
    ran = attack("def attempt():\n    with open('f', 'wb') as file: file.write(bytes(3 << 20))")
    assert "File too large" in result(ran)["error"]


@pytest.mark.parametrize("each", ["1 << 20", "0"])
def test_files_are_bounded_in_all(attack: Attack, nursery: Nursery, each: str) -> None:
    ran = attack(
        f"""
        import os, time
        def attempt():
            for number in range(1000):
                with open(f'f{{number}}', 'wb') as file: file.write(bytes({each}))
            time.sleep(5)
        """
    )
    if nursery.level is Level.STRONG:
        assert "No space left" in result(ran)["error"]
    else:
        assert ran["ending"] is Ending.DISK


def test_a_folder_that_cannot_be_looked_into_is_no_way_round(attack: Attack, nursery: Nursery) -> None:
    """Deeper than a path can tell, or changing all the time."""
    deep = "import os\ndef attempt():\n    for _ in range(60):\n        os.mkdir('d' * 250); os.chdir('d' * 250)\n"
    ran = attack(deep + "    import time; time.sleep(2)")
    assert ran["ending"] is (Ending.ANSWERED if nursery.level is Level.STRONG else Ending.DISK)
    changing = "import os, time\ndef attempt():\n    until = time.monotonic() + 0.5\n"
    changing += "    while time.monotonic() < until:\n        os.mkdir('d'); open('d/f', 'w').close()\n"
    changing += "        os.unlink('d/f'); os.rmdir('d')"
    assert attack(changing)["ending"] is Ending.ANSWERED


def test_nothing_of_the_surroundings_is_inherited(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = attack(
        """
        import os
        def attempt(): return [sorted(os.environ), sorted(os.listdir('/dev/fd') if 0 else [])]
        """
    )
    names = result(ran)["value"][0]
    assert names == ["HOME", "LANG", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "TMPDIR"]


def test_no_descriptor_is_inherited_but_the_pipe(attack: Attack) -> None:
    ran = attack(
        """
        import os
        def is_open(number):
            try: os.fstat(number)
            except OSError: return False
            return True
        def attempt(): return [number for number in range(1000) if is_open(number)]
        """
    )
    assert result(ran) == {"value": [0, 1, 2, 3]}


@pytest.mark.parametrize("whose", ["self", "1", "{parent}", "{tester}"])
@pytest.mark.parametrize("what", ["environ", "mem", "maps", "cmdline", "root/etc/passwd"])
def test_no_process_can_be_looked_into(attack: Attack, whose: str, what: str) -> None:
    whose = whose.replace("{tester}", str(os.getpid()))
    path = f"f'/proc/{whose.replace('{parent}', '{os.getppid()}')}/{what}'"
    ran = attack(f"import os\ndef attempt(): return open({path}, 'rb').read(1) and 1")
    assert result(ran).get("error", "").startswith(("PermissionError", "FileNotFoundError"))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file as a data directory holds it."""
    path = tmp_path / "local_key"
    path.write_text("tml-secret")
    return path


def test_files_of_the_machine_cannot_be_read(attack: Attack, secret: Path) -> None:
    for path in ("/etc/passwd", "/etc/shadow", "/etc/hostname", str(secret), str(Path(__file__))):
        assert refused(attack(f"def attempt(): return len(open({path!r}).read())")), path
    for folder in ("/", "/tmp", "/etc", "/home", "/root", "/proc", "/sys", "/dev", str(secret.parent)):
        assert refused(attack(f"import os\ndef attempt(): return len(os.listdir({folder!r}))")), folder


@pytest.mark.parametrize(
    "way",
    [
        "open({secret!r}, 'w')",
        "open({folder!r} + '/new', 'w')",
        "os.truncate({secret!r}, 0)",
        "os.unlink({secret!r})",
        "os.rename({secret!r}, 'mine')",
        "os.rename('own', {folder!r} + '/new')",
        "os.link({secret!r}, 'mine')",
        "os.mkdir({folder!r} + '/new')",
        "os.symlink('x', {folder!r} + '/new')",
        "os.chmod({secret!r}, 0o777)",
        "os.chown({secret!r}, 0, 0)",
        "os.utime({secret!r})",
        "os.setxattr({secret!r}, 'user.a', b'1')",
        "os.mkfifo({folder!r} + '/new')",
        "open('/dev/shm/new', 'w')",
    ],
)
def test_nothing_outside_can_be_changed(attack: Attack, secret: Path, way: str) -> None:
    before = secret.stat()
    code = "import os\ndef attempt():\n    open('own', 'w').close()\n    return str({})"
    assert "error" in result(attack(code.format(way.format(secret=str(secret), folder=str(secret.parent)))))
    assert secret.read_text() == "tml-secret"
    assert (secret.stat().st_mode, secret.stat().st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert list(secret.parent.iterdir()) == [secret]


def test_links_lead_nowhere(attack: Attack, secret: Path, nursery: Nursery) -> None:
    """Neither for the code nor for who clears up behind it."""
    ran = attack(
        f"""
        import os
        def attempt():
            os.symlink({str(secret)!r}, 'file'); os.symlink({str(secret.parent)!r}, 'folder')
            refusals = []
            for path, how in (('file', 'r'), ('file', 'w'), ('folder/local_key', 'r'), ('folder/new', 'w')):
                try: open(path, how)
                except PermissionError: refusals.append(path)
            return len(refusals)
        """
    )
    assert result(ran) == {"value": 4}
    assert secret.read_text() == "tml-secret"


def test_what_is_left_behind_is_cleared_away(attack: Attack, nursery: Nursery) -> None:
    ran = attack(
        """
        import os
        def attempt():
            folder = os.getcwd()
            for _ in range(150): os.mkdir('d'); os.chdir('d')
            return folder
        """
    )
    folder = Path(result(ran)["value"])
    assert not folder.exists() or not list(folder.iterdir())
    assert folder.exists() is (nursery.level is Level.STRONG)  # there it is the empty folder that disks are mounted on


def test_children_have_no_folder_in_common(nursery: Nursery) -> None:
    children = [nursery.fork("execute", LIMITS) for _ in range(2)]
    code = "import os\nopen('mine', 'w').close()"
    for child in children:
        ran = _run_in(child, {"code": code, "calls": [{"eval": "os.listdir()"}]}, 5, LIMITS, "texts[0]", on_disk=False)
        assert ran["results"] == [{"value": ["mine"]}]
    for child in children:
        child.close()


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


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("def attempt(): return 'x' * (4 << 20)", Ending.OUTPUT),
        ("import os\ndef attempt():\n    while True: os.write(3, b'x' * 65536)", Ending.OUTPUT),
        ("import os\ndef attempt():\n    while True: os.write(3, b'\\0\\0\\0\\2{}')", Ending.ANSWERED),
        ("import os\ndef attempt():\n    while True: os.write(1, b'x' * 65536)", Ending.TIME),
        ("import os\ndef attempt(): os.close(3)", Ending.EXITED),
        ("import os, time\ndef attempt():\n    os.close(3)\n    time.sleep(60)", Ending.EXITED),
        ("import os\ndef attempt(): os.write(3, b'\\0\\0\\0\\1x')", Ending.OUTPUT),
        ("import os\ndef attempt(): os._exit(0)", Ending.EXITED),
        ("import os\ndef attempt(): os.abort()", Ending.EXITED),
        ("import ctypes\ndef attempt(): ctypes.string_at(0)", Ending.EXITED),
    ],
)
def test_whatever_it_does_to_its_answer_is_its_own_doing(attack: Attack, code: str, ending: Ending) -> None:
    assert attack(code, seconds=1)["ending"] is ending


def test_nothing_runs_on(attack: Attack, nursery: Nursery) -> None:
    def family() -> set[int]:
        return {process.pid for process in psutil.Process().children(recursive=True)}

    before = family()
    attack("import threading, time\ndef attempt():\n    threading.Thread(target=time.sleep, args=(60,)).start()")
    attack("import time\ndef attempt(): time.sleep(60)", seconds=0.2)
    assert family() == before


def test_a_child_that_is_killed_from_outside_is_no_result(nursery: Nursery) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    child = nursery.fork("execute", LIMITS)
    (process,) = [one for one in psutil.Process().children(recursive=True) if one.pid not in before]
    threading.Timer(0.1, lambda: os.kill(process.pid, signal.SIGKILL)).start()
    order = {"code": "import time\ntime.sleep(60)", "calls": [{"eval": "1"}]}
    with pytest.raises(GraderFailed, match="signal 9"):
        _run_in(child, order, 30, LIMITS, "texts[0]", on_disk=False)
    child.close()


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
