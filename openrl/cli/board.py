"""What `openrl serve` shows on the terminal: a line for each component, a spinner while it loads, then what happens."""

import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from openrl.cli.child import tail
from openrl.cli.crew import Crew, Event, Member
from openrl.cli.supervisor import Phase, in_words

#: Date, time, level and logger, which the terminal has no room for.
_LOG_PREFIX = re.compile(r"^\S+ \S+ [A-Z]+ [\w.]+: ")


class Board:
    """Lives on standard error, so that standard output holds nothing but the lines to export."""

    def __init__(self, *, follow: bool) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        self._spinners: dict[str, Spinner] = {}
        self._logs: dict[str, Log] | None = {} if follow else None

    def loading(self, crew: Crew) -> None:
        """Show who is ready and who loads, until `ready`. Without a terminal, lines come as components get ready."""
        if self._console.is_terminal:
            self._live = Live(get_renderable=lambda: self._table(crew), console=self._console, refresh_per_second=8)
            self._live.start()

    def ready(self) -> None:
        """Leave the last picture standing."""
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()
            self._live = None

    def tell(self, event: Event) -> None:
        """A component got ready or died."""
        line = _sentence(event)
        if self._live is None or event.exit_status is not None:
            self._print(line)

    def say(self, line: str) -> None:
        self._print(Text(line))

    def follow(self, members: Iterable[Member]) -> None:
        """Print what the components wrote since the last time, their names in front; nothing unless asked for."""
        if self._logs is None:
            return
        for member in members:
            name = member.component.name
            log = self._logs.setdefault(name, Log(member.component.log))
            for line in log.news():
                self._print(Text.assemble((f"{name:>15} │ ", "cyan"), line))

    def _print(self, line: Text) -> None:
        with suppress(OSError):  # the terminal was closed; the components still have to be stopped in order
            self._console.print(line, soft_wrap=True)

    def _table(self, crew: Crew) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for name, member in list(crew.members.items()):
            mark = Text("✓", "green") if member.is_ready else self._spinners.setdefault(name, Spinner("dots"))
            address = member.component.address
            table.add_row(mark, name, address, f"pid {member.child.pid}", Text(_progress(member), "dim"))
        return table


class Log:
    """The lines of a log file from now on."""

    def __init__(self, path: Path) -> None:
        self._path, self._rest = path, ""
        self._at = path.stat().st_size if path.exists() else 0

    def news(self) -> list[str]:
        """Whole lines that were written since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        return lines


def print_exports(url: str, secret: str) -> None:
    """The two lines that a client's shell needs, on standard output."""
    sys.stdout.write(f"    export TINKER_BASE_URL={url}\n    export TINKER_API_KEY={secret}\n")
    sys.stdout.flush()


def _sentence(event: Event) -> Text:
    member = event.member
    name = member.component.name
    if event.exit_status is None:
        state = "is back" if event.again else "is ready"
        return Text.assemble(("✓ ", "green"), f"{name} {state}: ", _where(member))
    rest = max(0.0, member.life.rest_until - time.monotonic())
    return Text.assemble(("! ", "yellow"), f"{name} {in_words(event.exit_status)}; starting it again in {rest:.1f} s")


def _where(member: Member) -> str:
    address = f"{member.component.address}, " if member.component.address else ""
    return f"{address}pid {member.child.pid}"


def _progress(member: Member) -> str:
    if member.is_ready:
        return ""
    if member.life.phase is Phase.RESTING:
        return "rests"
    said = [_LOG_PREFIX.sub("", line) for line in tail(member.component.log, 1)]
    return f"{time.monotonic() - member.life.started_at:.0f} s {said[0][:60] if said else ''}"
