from pathlib import Path

import pytest

from openrl.cli.lineup import awaiting_own, lineup
from openrl.config import Settings
from openrl.domain.errors import SettingInvalid

SETTINGS = Settings(data_dir=Path("/data"), base_model="tiny", model_aliases=("org/a",))


def test_without_names_the_settings_say_what_is_served() -> None:
    assert lineup(SETTINGS, ()) == (SETTINGS,)


def test_one_base_model_has_all_aliases() -> None:
    (only,) = lineup(SETTINGS, ("org/other",))
    assert (only.base_model, only.model_aliases) == ("org/other", ("org/a",))


def test_of_several_base_models_each_has_its_own_aliases() -> None:
    aliases = ("org/a=tiny", "org/b=/models/x", "org/c=tiny")
    first, second = lineup(SETTINGS.model_copy(update={"model_aliases": aliases}), ("tiny", "/models/x"))
    assert (first.base_model, first.model_aliases) == ("tiny", ("org/a", "org/c"))
    assert (second.base_model, second.model_aliases) == ("/models/x", ("org/b",))


def test_the_gateway_waits_for_all_of_them_by_all_their_names() -> None:
    aliased = SETTINGS.model_copy(update={"model_aliases": ("org/a=tiny", "org/b=/models/x")})
    gateway = awaiting_own(aliased, ("tiny", "/models/x")).gateway
    assert (gateway.awaited_models, gateway.awaited_aliases) == (
        ("tiny", "/models/x"),
        ("org/a=tiny", "org/b=/models/x"),
    )
    assert awaiting_own(SETTINGS, ()).gateway.awaited_aliases == ("org/a=tiny",)


@pytest.mark.parametrize("alias", ["org/a", "org/a=nobody"])
def test_an_alias_that_does_not_say_whose_it_is_is_refused(alias: str) -> None:
    with pytest.raises(SettingInvalid, match="NAME=MODEL with one of tiny, other"):
        lineup(SETTINGS.model_copy(update={"model_aliases": (alias,)}), ("tiny", "other"))


@pytest.mark.parametrize("again", ["smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"])
def test_a_base_model_named_twice_is_refused(again: str) -> None:
    with pytest.raises(SettingInvalid, match="named twice"):
        lineup(SETTINGS, ("smollm2-135m", "tiny", again))
