"""What was given on the command line, as settings. Imports their module when asked, so that `--help` is quick."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from openrl.domain.errors import SettingInvalid

if TYPE_CHECKING:
    from openrl.config import Settings


def settings(**options: object) -> "Settings":
    """The environment's settings under those given: None was not. Raises SettingInvalid."""
    from openrl.config import load

    return load(**_given(options))


def component_settings(**options: object) -> "Settings":
    """The same for a component alone, which starts no broker: raises SettingInvalid where none is named, too."""
    found = settings(**options)
    if found.redis_url is None:
        raise SettingInvalid(
            "OPENRL_REDIS_URL", "set it to the broker's URL; only `openrl serve` starts a broker itself"
        )
    return found


def counted(option: str, count: int | None, *, fits: bool) -> int:
    """How many workers an option asks for. Raises SettingInvalid where it does not go with the others."""
    if count is not None and not fits:
        raise SettingInvalid(
            option,
            "--device-workers is for workers that do both, --train-workers and --sample-workers are for --separate",
        )
    return count or 1


def _given(options: Mapping[str, object]) -> dict[str, object]:
    nested = {name: _given(value) if isinstance(value, Mapping) else value for name, value in options.items()}
    return {name: value for name, value in nested.items() if value is not None and value != {}}
