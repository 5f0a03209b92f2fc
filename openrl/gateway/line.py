"""What an op that stands in line is told. Pure."""

from math import ceil

from openrl.ledger.port import Place


def in_line(place: Place | None) -> str | None:
    """A sentence on how long the line is; None for an op that does not stand in one."""
    if place is None:
        return None
    before = {0: "the next of your requests", 1: "behind 1 of your requests"}
    where = before.get(place.ahead, f"behind up to {place.ahead} of your requests")
    when = "" if place.seconds is None else f", for about {_span(place.seconds)}"
    return f"waiting in line, {where}{when}"


def _span(seconds: float) -> str:
    return f"{max(1, ceil(seconds))} s" if seconds < 120 else f"{ceil(seconds / 60)} min"
