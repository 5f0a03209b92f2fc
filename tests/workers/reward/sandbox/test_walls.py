import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from scoring import nursery_of

from workers.reward.execution import Ending
from workers.reward.grading import _run_in
from workers.reward.sandbox import landlock, seccomp, walls
from workers.reward.sandbox.levels import STRONGEST_FIRST, Level
from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.nursery import Nursery

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")

#: Begins in a place where nobody gets a namespace, as in most containers.
CONTAINED = """
from pathlib import Path
from workers.reward.sandbox import namespaces
namespaces.enter()
Path("/proc/sys/user/max_user_namespaces").write_text("0")
"""


def lacking_strong() -> str:
    """Asked in a process of its own: the walls bound memory, and this one may have taken more than that already."""
    told = subprocess.run([sys.executable, "-m", "workers.reward.sandbox.walls"], capture_output=True, check=True)
    return str(json.loads(told.stdout)["strong"])


def contained(code: str) -> str:
    if why := lacking_strong():
        pytest.skip(f"no such place can be made here: {why}")
    start = f"import os\n{CONTAINED}\npid = os.fork()\nif pid:\n    os._exit(os.waitpid(pid, 0)[1] >> 8)\n{code}"
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_strongest_level_that_can_be_had_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing, level in ((0, Level.STRONG), (1, Level.KERNEL), (2, Level.LIMITS)):
        without = STRONGEST_FIRST[:missing]
        monkeypatch.setattr(walls, "lacking", lambda one, without=without: "no" if one in without else None)
        assert walls.strongest() is level


@linux
def test_a_machine_without_landlock_or_of_unknown_calls_has_limits_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert walls.lacking(Level.KERNEL) == "the kernel has no Landlock"
    monkeypatch.setattr(walls.syscalls, "known", lambda: False)
    assert walls.strongest() is Level.LIMITS


@linux
def test_where_namespaces_are_forbidden_the_kernels_level_is_had() -> None:
    told = contained("from workers.reward.sandbox.walls import main\nmain()")
    lacking = json.loads(told)
    assert lacking["strong"].startswith("namespaces are forbidden")
    assert (lacking["kernel"], lacking["limits"]) == ("", "")


@linux
def test_a_level_that_cannot_be_had_is_refused_and_auto_takes_the_next() -> None:
    told = contained(
        """
from openrl.domain.errors import SettingInvalid
from workers.reward.sandbox.nursery import Nursery
try:
    Nursery("strong")
except SettingInvalid as error:
    print(error)
nursery = Nursery("auto")
print(nursery.level)
nursery.close()
"""
    )
    refusal, level = told.splitlines()
    assert refusal.startswith("OPENRL_WORKER__SANDBOX: strong cannot be had here: namespaces are forbidden")
    assert level == "kernel"


@pytest.fixture(scope="module")
def limited() -> Iterator[Nursery]:
    nursery = nursery_of(Level.LIMITS)
    yield nursery
    nursery.close()


@pytest.mark.parametrize(
    ("code", "ending", "results"),
    [
        ("sorted(os.environ)[0]", Ending.ANSWERED, [{"value": "HOME"}]),
        ("os.getcwd() == os.environ['TMPDIR']", Ending.ANSWERED, [{"value": True}]),
        ("[1 for _ in iter(int, 1)]", Ending.TIME, []),
    ],
)
def test_the_weakest_level_bounds_time_and_keeps_the_environment(
    limited: Nursery, code: str, ending: Ending, results: list[dict[str, Any]]
) -> None:
    limits = Limits(memory_bytes=256 << 20)
    child = limited.fork("execute", limits)
    order = {"code": "import os", "calls": [{"eval": code}]}
    ran = _run_in(child, order, 1.0, limits, "texts[0]", on_disk=True)
    child.close()
    assert (ran["ending"], ran["results"]) == (ending, results)


def test_the_weakest_level_leaves_nothing_running(limited: Nursery) -> None:
    """What the code began ends with it, unless it left the group, which only the other levels prevent."""
    before = set(psutil.Process().children(recursive=True))
    child = limited.fork("execute", Limits())
    order = {"code": "import os, time\nif os.fork() == 0:\n    time.sleep(60)", "calls": [{"eval": "1"}]}
    assert _run_in(child, order, 5.0, Limits(), "texts[0]", on_disk=True)["ending"] is Ending.ANSWERED
    child.close()
    left = set(psutil.Process().children(recursive=True)) - before
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in left)


@linux
def test_the_filter_ends_every_way_through_it_with_an_answer() -> None:
    """No jump leads outside, and each call of the list is allowed where its arguments are harmless."""
    steps = seccomp.program()
    for at, (code, yes, no, _) in enumerate(steps):
        assert at + 1 + max(yes, no) < len(steps) or code == 0x06
    assert steps[-1][0] == 0x06
    _, calls = walls.syscalls.ARCHITECTURES[walls.os.uname().machine]
    allowed, refused = 0x7FFF0000, 0x00050001
    assert judged(steps, calls["read"]) == allowed
    assert judged(steps, calls["clone"], 0x00010000) == allowed
    assert judged(steps, calls["clone"], 17) == refused
    assert judged(steps, calls["socketpair"], 1, 1 | 0x80000) == allowed
    assert judged(steps, calls["socketpair"], 2, 1) == refused
    assert judged(steps, calls["socketpair"], 1, 2) == refused
    assert judged(steps, calls["fcntl"], 3, 8) == refused
    assert judged(steps, calls["fcntl"], 3, 1) == allowed
    assert judged(steps, calls["prlimit64"], 1) == refused
    assert judged(steps, 435) == 0x00050026
    assert judged(steps, 423) == refused
    assert judged(steps, calls["read"], architecture=0x40000003) == 0x80000000


def judged(steps: list[seccomp.Step], number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel would answer: a small machine of its kind."""
    word = architecture or walls.syscalls.ARCHITECTURES[walls.os.uname().machine][0]
    description = {0: number, 4: word, **{16 + 8 * at: argument for at, argument in enumerate(arguments)}}
    at, value = 0, 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        if code == 0x20:
            value = description.get(operand, 0)
        elif code == 0x54:
            value &= operand
        elif code == 0x15:
            at += yes if value == operand else no
        elif code == 0x35:
            at += yes if value >= operand else no
        else:
            return operand


def test_all_that_is_readable_is_known_before(tmp_path: Path) -> None:
    """Of a folder on the module path only what was imported, nothing beside it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "single.py").write_text("")
    (tmp_path / "secret.txt").write_text("")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import mine, single\n"
        "from workers.reward.sandbox.readable import readable\n"
        "print(*readable(), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    paths = {Path(line) for line in done.stdout.splitlines()}
    assert {tmp_path / "mine", tmp_path / "single.py"} <= paths
    assert not any((tmp_path / "secret.txt").is_relative_to(path) for path in paths)
    assert not any(Path.home().is_relative_to(path) for path in paths)
