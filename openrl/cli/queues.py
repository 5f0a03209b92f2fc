"""`openrl queues`: what stands in the queues, as a table or as JSON."""

import json
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from openrl.cli.home import read_status
from openrl.cli.probes import connect
from openrl.cli.reach import ask
from openrl.cli.text import span
from openrl.config import Settings
from openrl.domain.ids import TenantId

NOTHING: Final = "·"
_NOBODY: Final = TenantId("")


def of_one_tenant(settings: Settings, url: str | None) -> list[dict[str, Any]]:
    """As the gateway tells it; each queue with an `own` part. Raises NotReached, NotServing."""
    found: list[dict[str, Any]] = ask(settings, url, "queues")
    return found


def of_all_tenants(settings: Settings) -> list[dict[str, Any]]:
    """From the ledger itself; each queue with its `tenants`. Raises NotServing, LedgerUnreachable."""
    from openrl.gateway.depth import queue_fields, share_fields
    from openrl.ledger.port import Limits
    from openrl.ledger.redis import RedisLedger
    from openrl.ledger.roster import RedisRoster

    names = _tenant_names(settings)
    with connect(settings.redis_url or _broker(settings)) as client:
        loads = RedisLedger(client, {}, lambda bell: None, holder="", limits=Limits()).queues()  # type: ignore[arg-type]  # a census reads no shelf
        roster = RedisRoster(client)
        fields = queue_fields(loads, roster.workers(), {card.name for card in roster.cards()}, _NOBODY)
    shares = {load.name: load.shares for load in loads}
    for queue in fields:
        del queue["own"]
        found = shares.get(queue["queue"], ())
        queue["tenants"] = [{"tenant": names.get(each.tenant, each.tenant)} | share_fields(each) for each in found]
    return fields


def show(queues: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(queues, indent=2))
        return
    Console().print(table(queues))


def table(queues: list[dict[str, Any]]) -> Table:
    """A row for each queue with what is one's own behind it, or with a row below it for each tenant."""
    everyone = any("tenants" in queue for queue in queues)
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    shown.add_column("queue")
    shown.add_column("model, tenant" if everyone else "model")
    mine = () if everyone else ("yours running", "waiting")
    for name in ("workers", "slots", "running", "waiting", *mine, "oldest", "last begins in"):
        shown.add_column(name, justify="right")
    for queue in queues:
        shown.add_row(*_row(queue))
        for share in queue.get("tenants", ()):
            shown.add_row("", f"  {share['tenant']}", "", "", *_share(share), style="cyan")
    return shown


def _row(queue: dict[str, Any]) -> list[str]:
    workers = str(queue["workers"]) if queue["workers"] else "[red]none[/]"
    start = [f"[bold]{queue['kind']}[/]", queue["model"] or "", workers, _number(queue["slots"]), *_counts(queue)]
    return [*start, *_share(queue["own"])] if "own" in queue else [*start, "", ""]


def _share(share: dict[str, Any]) -> list[str]:
    return [*_counts(share), *(span(share[name]) or NOTHING for name in ("oldest_seconds", "seconds"))]


def _counts(load: dict[str, Any]) -> list[str]:
    return [_number(load["running"]), _number(load["waiting"])]


def _number(count: int | None) -> str:
    return f"{count:,}" if count else NOTHING


def _tenant_names(settings: Settings) -> dict[str, str]:
    from openrl.cli.keys import opened

    keys = opened(settings).keys()
    return {key.tenant: key.tenant_name for key in keys}


def _broker(settings: Settings) -> str:
    return str(read_status(settings.home)["broker"])
