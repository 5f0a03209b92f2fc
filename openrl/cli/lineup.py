"""Which base models `openrl serve` serves, and what the workers of each are told. Starts and loads nothing."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from openrl.config import Settings
from openrl.domain.errors import SettingInvalid
from openrl.models.catalogue import find


def lineup(settings: Settings, base_models: Sequence[str]) -> tuple[Settings, ...]:
    """The settings for the workers of each base model, in order. No `base_models` is the one in the settings.

    With several, an alias says whose it is: `NAME=MODEL`. Raises SettingInvalid for a model named twice, and for an
    alias of none of them.
    """
    names = tuple(base_models) or (settings.base_model,)
    _require_different(names)
    if len(names) == 1:
        return (settings.model_copy(update={"base_model": names[0]}),)
    aliases = [_owned(alias, names) for alias in settings.model_aliases]
    return tuple(
        settings.model_copy(
            update={"base_model": name, "model_aliases": tuple(alias for alias, owner in aliases if owner == name)}
        )
        for name in names
    )


def awaiting_own(settings: Settings, base_models: Sequence[str]) -> Settings:
    """Requests wait for what is served here, too, where its worker is not up."""
    own = lineup(settings, base_models)
    gateway = settings.gateway
    models = (*gateway.awaited_models, *(model.base_model for model in own))
    pairs = (f"{alias}={model.base_model}" for model in own for alias in model.model_aliases)
    awaited = {
        "awaited_models": tuple(dict.fromkeys(models)),
        "awaited_aliases": tuple(dict.fromkeys((*gateway.awaited_aliases, *pairs))),
    }
    return settings.model_copy(update={"gateway": gateway.model_copy(update=awaited)})


def _require_different(names: Iterable[str]) -> None:
    for _, same in groupby(sorted(names, key=_identity), key=_identity):
        first, *more = same
        if more:
            raise SettingInvalid(
                "--base-model", f"{first} is named twice; --device-workers starts several workers of each"
            )


def _identity(name: str) -> str:
    """Equal for two names of one listed model."""
    listed = find(name)
    return name if listed is None else listed.name


def _owned(alias: str, names: Sequence[str]) -> tuple[str, str]:
    """The alias and the base model it is for."""
    name, _, owner = alias.partition("=")
    if owner not in names:
        raise SettingInvalid(
            "--alias", f"{alias!r} does not say for which base model; write NAME=MODEL with one of {', '.join(names)}"
        )
    return name, owner
