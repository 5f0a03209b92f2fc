"""Imports of much at once, such as torch, without looking for garbage among what stays: an eighth of their time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def many() -> Iterator[None]:
    """No garbage is collected in the block; what was made until its end is never looked at again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
