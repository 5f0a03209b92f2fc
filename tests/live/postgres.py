"""A PostgreSQL of a test's own, over TCP with a password: Debian's where it is installed, which is a database as others
run it; else the one in the wheel pgserver, which the catalog's own tests use and most machines can have."""

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from openrl.cli.ports import LOCAL, free_port

USER, PASSWORD = "openrl", "secret"
#: PostgreSQL refuses root, who is whom tests in a container run as.
OTHERS = "nobody"


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of its database; in a folder that its user may enter."""
    with TemporaryDirectory(prefix="openrl-postgres-") as folder:
        programs = debians()
        with _debians(programs, Path(folder)) if programs else _wheels(folder) as url:
            yield url


def debians() -> Path | None:
    """The folder of the newest version's programs."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


@contextmanager
def _debians(programs: Path, folder: Path) -> Iterator[str]:
    (folder / "password").write_text(PASSWORD)
    user = OTHERS if os.getuid() == 0 else None
    if user:
        for path in (folder, folder / "password"):
            shutil.chown(path, user)
    data, port = folder / "data", free_port()
    made = [programs / "initdb", "-D", data, "-U", USER, "--auth=scram-sha-256", f"--pwfile={folder / 'password'}"]
    subprocess.run([*made, "--no-sync"], check=True, capture_output=True, user=user)
    where = [f"-D{data}", f"-p{port}", f"-clisten_addresses={LOCAL}", f"-cunix_socket_directories={folder}"]
    server = subprocess.Popen([programs / "postgres", *where, "-cfsync=off"], stderr=subprocess.DEVNULL, user=user)
    try:
        ready = [programs / "pg_isready", "-q", "-h", LOCAL, "-p", str(port), "-t", "1"]
        while subprocess.run(ready).returncode:
            assert server.poll() is None, "PostgreSQL ended"
        yield f"postgresql://{USER}:{PASSWORD}@{LOCAL}:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)  # which does not wait for its clients
        server.wait(30)


@contextmanager
def _wheels(folder: str) -> Iterator[str]:
    pgserver = pytest.importorskip("pgserver", reason="no PostgreSQL: neither Debian's nor a wheel for this Python")
    with warnings.catch_warnings(action="ignore"):  # its own, about the folder it runs in
        server = pgserver.get_server(folder)
    yield server.get_uri().replace("postgresql://postgres:@/", "postgresql://postgres@/")
    server.cleanup()
