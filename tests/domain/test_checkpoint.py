import pytest

from openrl.domain.checkpoint import CheckpointKind, CheckpointPath, check_name
from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import RunId


def test_a_path_is_read_as_it_is_written() -> None:
    path = CheckpointPath(run=RunId("s:train:0"), kind=CheckpointKind.WEIGHTS, name="step-3")
    assert str(path) == "tinker://s:train:0/weights/step-3"
    assert CheckpointPath.parse(str(path)) == path


@pytest.mark.parametrize(
    "path",
    ["", "s/weights/a", "http://s/weights/a", "tinker://s/weights", "tinker://s/other/a", "tinker://s/weights/a/b"],
)
def test_another_form_is_refused_by_the_field_it_came_in(path: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        CheckpointPath.parse(path, "model_path")
    assert caught.value.field == "model_path"


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "a b", "a/b", "a" * 129, "é"])
def test_a_name_that_could_be_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(FieldInvalid, match="cannot name a checkpoint"):
        check_name(name)
