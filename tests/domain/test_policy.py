import pytest

from openrl.domain.ids import DepotKey
from openrl.domain.policy import holds_model


@pytest.mark.parametrize(
    ("key", "whole"),
    [("policies/full-0a1b", True), ("checkpoints/full-0a", True), ("policies/0a1b", False), ("full-x/0a1b", False)],
)
def test_a_key_tells_whether_a_whole_model_is_in_its_folder(key: str, whole: bool) -> None:
    assert holds_model(DepotKey(key)) is whole
