"""Beginning and going on: what a record goes on with, and what the command says."""

from pathlib import Path

import pytest
from autoresearch import cli, config, starting
from autoresearch.errors import ResearchError
from autoresearch.store import Record
from researching import TOML, Folder
from typer.testing import CliRunner

AGENT = '\n[agent]\ncommand = ["agent", "{history}"]\nseconds = 5\n'


def begin(folder: Path, record: Path) -> None:
    place = config.Place.of(folder)
    with starting.harness(config.load(place), place.folder, Record(record), lambda *_: None):
        pass


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("target.py", "score:", "scores:", "files of the research folder"),
        ("autoresearch.toml", '"settings.json"', '"*.json"', "editable"),
        ("autoresearch.toml", "seeds = 2", "seeds = 3", "budget"),
        ("autoresearch.toml", '"agent"', '"other"', "agent"),
    ],
)
def test_a_record_goes_on_with_the_same_research_only(
    folder: Folder, tmp_path: Path, file: str, old: str, new: str, told: str
) -> None:
    place = folder(more=AGENT)
    begin(place, tmp_path / "record")
    (place / file).write_text((place / file).read_text().replace(old, new, 1))
    with pytest.raises(ResearchError, match=f"changed since then: {told}.*--record"):
        begin(place, tmp_path / "record")
    begin(place, tmp_path / "another")


@pytest.mark.parametrize(
    ("old", "new"), [("attempts = 4", "attempts = 9"), ("at_once = 2", "at_once = 1"), ("seconds = 5", "seconds = 9")]
)
def test_the_budget_may_change_on_the_way(folder: Folder, tmp_path: Path, old: str, new: str) -> None:
    place = folder(more=AGENT)
    begin(place, tmp_path / "record")
    base = Record(tmp_path / "record").facts()["base"]
    (place / "autoresearch.toml").write_text((place / "autoresearch.toml").read_text().replace(old, new, 1))
    begin(place, tmp_path / "record")
    assert Record(tmp_path / "record").facts()["base"] == base


@pytest.mark.parametrize("key", ["environment", "agent.environment"])
def test_a_missing_variable_is_told_before_anything_is_run(folder: Folder, tmp_path: Path, key: str) -> None:
    more = 'environment = ["NOT_SET"]\n'
    place = folder(toml=TOML if "." in key else more + TOML, more=AGENT + (more if "." in key else ""))
    with pytest.raises(ResearchError, match=rf"`{key}` names NOT_SET"):
        begin(place, tmp_path / "record")
    assert not (tmp_path / "record").exists()


def test_a_second_harness_on_a_record_is_told_of_the_first(folder: Folder, tmp_path: Path) -> None:
    place = folder(more=AGENT)
    with Record(tmp_path / "record").locked(), pytest.raises(ResearchError, match="another `autoresearch run` works"):
        begin(place, tmp_path / "record")


@pytest.mark.parametrize("command", ["status", "report"])
def test_a_record_that_is_not_there_is_told(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr("sys.argv", ["autoresearch", command, str(folder())])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert "holds no record yet: begin with `autoresearch run`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "A research folder holds program.md"),
        (["run"], "the same command goes on where it was"),
        (["status"], "May be asked while it runs"),
        (["report"], "needs no network to show"),
    ],
)
def test_help_teaches(words: list[str], told: str) -> None:
    done = CliRunner().invoke(cli.app, [*words, "--help"], catch_exceptions=False)
    assert told in " ".join(done.output.replace("│", " ").split()) and "RESEARCH" in done.output
