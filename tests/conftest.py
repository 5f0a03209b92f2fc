"""The garbage collector passes over what stays to the end: all that is imported, which is a million objects. Else a
test pays a fifth of a second wherever it, or the code it tests, collects garbage."""

import gc

gc.disable()  # while tests are collected, for nothing they make goes away


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
