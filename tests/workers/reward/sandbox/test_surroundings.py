"""What the model's code may see and change of the machine, at each level that promises to hold it."""

import os
from pathlib import Path

import pytest
from attacking import LIMITS, Attack, refused, result

from workers.reward.grading import _run_in
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.nursery import Nursery


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
