"""`openrl workers`: who is at work and how busy, as a table or as JSON."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from openrl.cli.reach import ask
from openrl.config import Settings


def asked(settings: Settings, url: str | None) -> list[dict[str, Any]]:
    """As the workers last announced it. Raises NotReached, NotServing."""
    found: list[dict[str, Any]] = ask(settings, url, "workers")
    return found


def show(workers: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(workers, indent=2))
        return
    Console().print(table(workers))


def table(workers: list[dict[str, Any]]) -> Table:
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("role", "worker", "models", "state"):
        shown.add_column(name)
    for name in ("slots", "busy", "tokens trained", "tokens drawn"):
        shown.add_column(name, justify="right")
    for worker in workers:
        state = "[yellow]draining[/]" if worker["draining"] else "at work"
        models = ", ".join(worker["models"])
        shown.add_row(f"[bold]{worker['role']}[/]", worker["id"], models, state, str(worker["slots"]), *_use(worker))
    return shown


def _use(worker: dict[str, Any]) -> list[str]:
    use = worker["use"]
    if use is None:
        return ["", "", ""]
    share = use["busy_seconds"] / use["seconds"] if use["seconds"] else 0.0
    return [f"{share:.0%}", f"{use['train']['tokens']:,}", f"{use['sample']['tokens']:,}"]
