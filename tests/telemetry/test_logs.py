import json
import logging
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from openrl.telemetry.logs import JsonLines, about, use


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def last(self) -> dict[str, object]:
        fields: dict[str, object] = json.loads(self.lines[-1])
        return fields


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines, logger = Lines(), logging.getLogger("tests.lines")
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)


log = logging.getLogger("tests.lines")


def test_a_record_is_one_line_with_its_fields_and_whom_it_concerns(lines: Lines) -> None:
    with about(op="op-1", run="run-1", tenant="t"):
        log.warning("two\nlines of %s", "text", extra={"action": "ring", "seconds": 0.5})
    assert "\n" not in lines.lines[-1]
    assert lines.last.pop("time").endswith("+00:00")  # type: ignore[attr-defined]
    told = {name: value for name, value in lines.last.items() if name != "time"}
    assert told == {
        "level": "WARNING",
        "logger": "tests.lines",
        "message": "two\nlines of text",
        "op": "op-1",
        "run": "run-1",
        "tenant": "t",
        "action": "ring",
        "seconds": 0.5,
    }


def test_a_record_that_concerns_nobody_says_so(lines: Lines) -> None:
    log.warning("hello")
    assert [lines.last[name] for name in ("op", "run", "tenant")] == [None, None, None]


def test_subjects_add_up_and_end_with_their_block(lines: Lines) -> None:
    with about(tenant="t"):
        with about(op="a", run=None):
            log.warning("inside")
            assert (lines.last["op"], lines.last["run"], lines.last["tenant"]) == ("a", None, "t")
        log.warning("after")
    assert (lines.last["op"], lines.last["tenant"]) == (None, "t")


def test_what_a_record_says_itself_goes_before(lines: Lines) -> None:
    with about(op="a"):
        log.warning("of another", extra={"op": "b"})
    assert lines.last["op"] == "b"


def test_threads_do_not_mix_their_subjects_up(lines: Lines) -> None:
    with about(op="mine"), ThreadPoolExecutor(1) as pool:
        pool.submit(log.warning, "elsewhere").result()
    assert lines.last["op"] is None


def test_an_exception_is_part_of_the_line(lines: Lines) -> None:
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        log.exception("failed")
    assert "ZeroDivisionError" in str(lines.last["exception"]) and "\n" not in lines.lines[-1]


def test_celerys_own_records_name_the_op(lines: Lines) -> None:
    log.warning("Task received", extra={"data": {"id": "op-7", "args": "secret"}})
    assert lines.last["op"] == "op-7" and "secret" not in lines.lines[-1]


def test_text_stays_as_it_is_unless_json_is_asked_for() -> None:
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    try:
        use("text")
        assert handler.formatter is None
        use("json")
        assert isinstance(handler.formatter, JsonLines)
    finally:
        for each in logging.getLogger().handlers:
            if isinstance(each.formatter, JsonLines):
                each.setFormatter(None)
        logging.getLogger().removeHandler(handler)


def test_celerys_own_lines_tell_whose_a_task_was_after_its_work_too(lines: Lines) -> None:
    with about(op="op-9", run="run-9", tenant="t"):
        pass
    log.warning("Task %(name)s[%(id)s] succeeded", {"name": "n"} | {"id": "op-9"}, extra={"data": {"id": "op-9"}})
    assert [lines.last[name] for name in ("op", "run", "tenant")] == ["op-9", "run-9", "t"]
    log.warning("received", extra={"data": {"id": "op-10"}})
    assert [lines.last[name] for name in ("op", "run", "tenant")] == ["op-10", None, None]


def test_only_so_many_ops_are_kept(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openrl.telemetry.logs.KEPT", 2)
    monkeypatch.setattr("openrl.telemetry.logs._kept", OrderedDict())
    for op in ("a", "b", "c"):
        with about(op=op, tenant=op):
            pass
    for op, tenant in (("a", None), ("c", "c")):
        log.warning("succeeded", extra={"data": {"id": op}})
        assert lines.last["tenant"] == tenant
