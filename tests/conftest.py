"""The garbage collector passes over what stays to the end: all that is imported, which is a million objects. Else a
test pays a fifth of a second wherever it, or the code it tests, collects garbage."""

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
