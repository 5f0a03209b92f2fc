"""`openrl ops show`: what an operation has been through, as lines or as JSON."""

import json
from datetime import datetime
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table
from rich.text import Text

from openrl.cli.reach import ask
from openrl.cli.text import span
from openrl.config import Settings

STYLES = {"waiting": "yellow", "held": "cyan", "done": "green", "failed": "red"}
MEMBERS_SHOWN = 10


def asked(settings: Settings, url: str | None, op_id: str) -> dict[str, Any]:
    """Raises NotReached, also where there is no such op of the tenant; NotServing."""
    found: dict[str, Any] = ask(settings, url, f"ops/{quote(op_id, safe='')}?life=true")
    return found


def show(op: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(op, indent=2))
        return
    shown = Table.grid(padding=(0, 3, 0, 0))
    for name, said in story(op):
        shown.add_row(Text(name, "dim"), said)
    Console().print(shown)


def story(op: dict[str, Any]) -> list[tuple[str, Text]]:
    """What there is to tell, in the order in which it happened."""
    lines = [("op", Text(op["op_id"], "bold")), ("kind", Text(op["kind"]))]
    lines += [("status", Text(op["status"], STYLES.get(op["status"], "")))]
    lines += [("appended", Text(f"{_time(op['appended_at'])}, {span(op['age_seconds'])} until {_until(op)}"))]
    lines += [("after", line) for line in _members(op["after"])]
    lines += [("queue", Text(line)) for line in _queue(op)]
    lines += [("claimed", Text(line)) for line in _claims(op)]
    lines += [("settled", Text(_time(op["settled_at"])))] if op["settled_at"] else []
    error = op.get("error")
    return [*lines, *([("error", Text(f"{error['error']}: {error['message']}", "red"))] if error else [])]


def _until(op: dict[str, Any]) -> str:
    return "it settled" if op["settled_at"] else "now"


def _members(after: dict[str, Any]) -> list[Text]:
    shown = [
        Text.assemble(each["op_id"], " ", (each["status"] or "forgotten", STYLES.get(each["status"], "dim")))
        for each in after["ops"][:MEMBERS_SHOWN]
    ]
    more = after["count"] - len(shown)
    return [*shown, *([Text(f"and {more} more")] if more else [])]


def _queue(op: dict[str, Any]) -> list[str]:
    line, rung = op["line"], op["rung_at"]
    if line is not None:
        when = "" if line["seconds"] is None else f", for about {span(line['seconds'])}"
        return [f"{op['queue']}: in line {line['name']}, {line['ahead']} of yours ahead{when}"]
    again = f", {op['rung_again']} times again" if op["rung_again"] else ""
    never = "not rung" if op["settled_at"] else "not rung yet"
    states = [f"{op['queue']}: {never if rung is None else f'rung {_time(rung)}{again}'}"]
    return [*states, *([op["waits_because"]] if op["waits_because"] else [])]


def _claims(op: dict[str, Any]) -> list[str]:
    if not op["attempts"]:
        return []
    by = f" by {op['worker']}" if op["worker"] else ""
    tries = "once" if op["attempts"] == 1 else f"{op['attempts']} times, the last"
    return [f"{tries}{by}, {_time(op['claimed_at'])}"]


def _time(when: str) -> str:
    return f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d %H:%M:%S}"
