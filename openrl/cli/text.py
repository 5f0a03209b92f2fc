"""Plain text for people and for pipes."""

from collections.abc import Sequence
from math import ceil


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns, two spaces between; nothing is cut off, whatever the terminal's width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def span(seconds: float | None) -> str:
    """About how long, in one unit; empty for None."""
    if seconds is None:
        return ""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{round(seconds / unit)} {name}"
    return f"{max(1, ceil(seconds))} s"
