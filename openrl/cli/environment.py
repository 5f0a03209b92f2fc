"""Settings as the environment of a process that will read them with `openrl.config.load`."""

from collections.abc import Iterator, Mapping
from typing import Any

from openrl.config import Settings


def variables(settings: Settings) -> dict[str, str]:
    """`OPENRL_*` variables from which `load` makes the same settings. Settings that are None are left out."""
    return dict(_flat("OPENRL", settings.model_dump(mode="json"), first="_"))


def child_env(settings: Settings, own: Mapping[str, str]) -> dict[str, str]:
    """`own` (this process's environment) with the settings in place of its `OPENRL_*` settings.

    OMP_WAIT_POLICY: threads of several processes that spin on the same cores make each other several times slower.
    """
    inherited = {name: value for name, value in own.items() if not name.startswith("OPENRL_")}
    inherited.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return {**inherited, **variables(settings)}


def _flat(prefix: str, tree: Mapping[str, Any], first: str = "__") -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        variable = f"{prefix}{first}{name.upper()}"
        if isinstance(value, Mapping):
            yield from _flat(variable, value)
        elif value is not None:
            yield variable, ",".join(value) if isinstance(value, list) else str(value)
