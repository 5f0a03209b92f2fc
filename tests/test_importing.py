"""Nothing is collected while much is imported, and what was is never walked again."""

import gc

import pytest

from openrl import importing


@pytest.mark.parametrize("before", [True, False])
def test_garbage_is_left_alone_until_all_is_imported(before: bool) -> None:
    (gc.enable if before else gc.disable)()
    try:
        with pytest.raises(ImportError), importing.many():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is before
    finally:
        gc.enable()


def test_what_was_imported_is_not_walked_again() -> None:
    frozen = gc.get_freeze_count()
    with importing.many():
        module = [[] for _ in range(100)]
    assert gc.get_freeze_count() > frozen
    assert not any(each is module for each in gc.get_objects())
