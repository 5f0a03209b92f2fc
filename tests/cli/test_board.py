from pathlib import Path

import pytest

from openrl.cli.board import Log, print_exports


def test_a_log_is_followed_from_now_on_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("old\n")
    log = Log(path)
    with path.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert log.news() == ["one"]
        file.write("o\n")
        file.flush()
        assert log.news() == ["two"]
    assert log.news() == []


def test_a_log_may_not_be_there_yet(tmp_path: Path) -> None:
    log = Log(tmp_path / "x.log")
    assert log.news() == []
    (tmp_path / "x.log").write_text("first\n")
    assert log.news() == ["first"]


def test_the_lines_to_export_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    print_exports("http://127.0.0.1:8000", "tml-x")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["export TINKER_BASE_URL=http://127.0.0.1:8000", "export TINKER_API_KEY=tml-x"]
