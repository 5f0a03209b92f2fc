from datetime import UTC, datetime

from openrl.cli.roll import worker_line, worker_lines
from openrl.domain.ids import WorkerId
from openrl.domain.model import ModelCard
from openrl.domain.worker import DeviceUse, Role, SideUse, WorkerInfo

CARD = ModelCard(name="tiny", tokenizer_id="tiny", architecture="L", vocab_size=1, context_length=1)


def info(role: Role, cards: tuple[ModelCard, ...] = (), use: DeviceUse | None = None) -> WorkerInfo:
    return WorkerInfo(
        id=WorkerId("w1"), role=role, host="h", pid=1, cards=cards, slots=2, started_at=datetime.now(UTC), use=use
    )


def test_a_device_worker_tells_how_busy_it_is() -> None:
    use = DeviceUse(
        seconds=10.0,
        busy_seconds=6.0,
        train=SideUse(seconds=4.0, passes=1, tokens=80),
        sample=SideUse(seconds=2.0, passes=5, tokens=9),
    )
    assert worker_line(info(Role.DEVICE, (CARD,), use)) == (
        "  device  w1: 2 slots; tiny; busy 60% of 10 s (training 4.0 s, 80 tokens; sampling 2.0 s, 9 tokens)"
    )


def test_a_worker_without_a_device_tells_its_slots() -> None:
    assert worker_line(info(Role.REWARD)) == "  reward  w1: 2 slots"


def test_a_broker_that_does_not_answer_is_told() -> None:
    (line,) = worker_lines("redis://127.0.0.1:1")
    assert line.startswith("  workers unknown: ")
