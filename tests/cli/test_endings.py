import pytest

from openrl.cli import endings
from openrl.cli.errors import BrokerMissing
from openrl.domain.errors import RunNotFound


def test_a_missing_extra_is_told_with_the_command_that_installs_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"), endings.command():
        raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    assert "pip install 'openrl[serve]'" in capsys.readouterr().err


def test_a_module_that_belongs_to_no_extra_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError), endings.command():
        raise ModuleNotFoundError("No module named 'openrl.nowhere'", name="openrl.nowhere")


def test_an_error_on_purpose_ends_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="1"), endings.command():
        raise BrokerMissing("it is not there")
    assert capsys.readouterr().err.startswith("error: no embedded broker: it is not there")


def test_a_component_refuses_what_an_operator_must_mend_only() -> None:
    with pytest.raises(SystemExit, match="78"), endings.component():
        raise BrokerMissing("it is not there")
    with pytest.raises(RunNotFound), endings.component():
        raise RunNotFound("a-run")
