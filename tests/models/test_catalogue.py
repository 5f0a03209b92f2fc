from pathlib import Path

import pytest

from openrl.domain.errors import BaseModelMissing
from openrl.models.catalogue import LISTED, find, folder_of, named, resolve


def _make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_names_and_aliases_are_found_in_any_case() -> None:
    model = named("smollm2-135m")
    assert find("HuggingFaceTB/SmolLM2-135M-Instruct") is model
    assert find("SmolLM2-135M") is model
    assert find("nobody/nothing") is None


def test_an_unknown_name_is_told_with_the_names_there_are() -> None:
    with pytest.raises(BaseModelMissing, match="smollm2-135m, gemma3-270m, tiny"):
        named("nope")


def test_no_two_models_share_a_name() -> None:
    names = [name.lower() for model in LISTED for name in (model.name, *model.aliases)]
    assert len(set(names)) == len(names)


def test_what_is_downloaded_has_a_checksum_and_a_licence() -> None:
    for model in LISTED:
        assert bool(model.sha256) == bool(model.wheels)
        assert model.licence


def test_a_listed_model_resolves_to_its_folder(tmp_path: Path) -> None:
    folder = _make(folder_of(named("tiny"), tmp_path))
    assert resolve("tiny", tmp_path) == folder


def test_an_alias_resolves_to_the_folder_once_it_is_there(tmp_path: Path) -> None:
    alias = "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert resolve(alias, tmp_path) == alias
    folder = _make(folder_of(named("smollm2-135m"), tmp_path))
    assert resolve(alias, tmp_path) == folder


def test_a_listed_model_that_is_not_here_says_how_to_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(BaseModelMissing, match="openrl models pull tiny"):
        resolve("tiny", tmp_path)


def test_a_local_folder_resolves_to_itself(tmp_path: Path) -> None:
    folder = _make(tmp_path / "mine")
    assert resolve(str(folder), tmp_path) == folder
    (tmp_path / "empty").mkdir()
    with pytest.raises(BaseModelMissing, match=r"no config\.json"):
        resolve(str(tmp_path / "empty"), tmp_path)


def test_a_hub_id_stays_as_it_is(tmp_path: Path) -> None:
    assert resolve("Qwen/Qwen3-0.6B", tmp_path) == "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize("name", ["nope", "./nope/model", "/no/such", "a/b/c", "~/nothing-here", ""])
def test_anything_else_is_told_with_what_can_be_given(tmp_path: Path, name: str) -> None:
    with pytest.raises(BaseModelMissing, match="hub id like org/name"):
        resolve(name, tmp_path)
