import logging
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from redis.exceptions import OutOfMemoryError

from openrl.domain.ids import OpId
from openrl.domain.op import Bell
from queues.bell import ringer

BELL = Bell(op=OpId("op-1"), queue="reward.0", task="reward.score_texts", summary="reward=exact texts=1")


class App:
    """Takes what is sent, unless the broker is away."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def send_task(self, task: str, **options: Any) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((task, options))


def test_a_message_carries_the_ops_id_and_nothing_else_of_it() -> None:
    app: Any = App()
    ringer(app)(BELL)
    [(task, options)] = app.sent
    assert (task, options["queue"], options["task_id"]) == ("reward.score_texts", "reward.0", "op-1")
    assert (options["args"], options.get("kwargs")) == (("op-1",), None)


@pytest.mark.parametrize("error", [OperationalError("away"), ConnectionRefusedError("away"), OutOfMemoryError("full")])
def test_a_bell_that_cannot_be_rung_is_logged_and_not_raised(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    app: Any = App(error)
    with caplog.at_level(logging.WARNING, "queues.bell"):
        ringer(app)(BELL)
    assert [record.getMessage() for record in caplog.records] == [f"bell lost, to be rung again: {error}"]
