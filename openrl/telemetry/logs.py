"""Logs as JSON, one object a line, and whose work a record tells of: op, run and tenant, set where the work begins."""

import json
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

#: In every record; null for one that concerns none.
SUBJECTS: Final = ("op", "run", "tenant")

#: Of so many ops whose work began last is kept whose they are: Celery tells of a task when that is over, too.
KEPT: Final = 4096

_kept: OrderedDict[str, Mapping[str, str]] = OrderedDict()
_about: ContextVar[Mapping[str, str] | None] = ContextVar("about", default=None)

#: What logging itself puts into a record, and Celery's copy of a message, whose op is told.
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}


@contextmanager
def about(**subjects: str | None) -> Iterator[None]:
    """Records of this thread, or of this task of an event loop, concern these until the block ends; None: no such."""
    told = {**(_about.get() or {}), **{name: value for name, value in subjects.items() if value is not None}}
    if "op" in told:
        _keep(told)
    token = _about.set(told)
    try:
        yield
    finally:
        _about.reset(token)


def _keep(told: Mapping[str, str]) -> None:
    _kept[told["op"]] = told
    if len(_kept) > KEPT:
        _kept.popitem(last=False)


def use(form: str) -> None:
    """Have the root logger's handlers write `text`, as they do, or `json`."""
    if form == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines())


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **dict.fromkeys(SUBJECTS),
            **_celery_op(record),
            **(_about.get() or {}),
            **{name: value for name, value in vars(record).items() if name not in _OWN},
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _celery_op(record: logging.LogRecord) -> Mapping[str, str]:
    """Celery tells of tasks outside of their work; a task's id is its op's."""
    data = getattr(record, "data", None)
    if not isinstance(data, Mapping) or "id" not in data:
        return {}
    op = str(data["id"])
    return {**_kept.get(op, {}), "op": op}
