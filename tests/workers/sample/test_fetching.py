import threading

import pytest

from openrl.domain.errors import DepotDamaged, DepotUnreachable, EngineBusy
from openrl.domain.ids import DepotKey
from workers.sample import fetching
from workers.sample.fetching import Patient

KEY, FILES = DepotKey("policies/1"), {"a": b"1"}


class Shaky:
    """Answers what it was told, in turn."""

    def __init__(self, *answers: Exception | dict[str, bytes]) -> None:
        self.answers = list(answers)

    def __call__(self, _: DepotKey) -> dict[str, bytes]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FIRST_PAUSE_SECONDS", 0.001)


def away() -> DepotUnreachable:
    return DepotUnreachable("s3://b", "no route")


def test_a_depot_that_blinks_is_asked_again() -> None:
    assert Patient(Shaky(away(), away(), FILES)).get(KEY) == FILES


def test_a_missing_version_is_told_at_once() -> None:
    with pytest.raises(KeyError):
        Patient(Shaky(KeyError(KEY), FILES)).get(KEY)


def test_a_depot_that_stays_away_is_a_passing_error() -> None:
    with pytest.raises(EngineBusy, match="no route"):
        Patient(Shaky(*[away()] * 100), seconds=0.005).get(KEY)


def test_bytes_that_are_wrong_twice_are_damaged() -> None:
    damaged = DepotDamaged("s3://b", "its checksum is another")
    assert Patient(Shaky(damaged, FILES)).get(KEY) == FILES
    with pytest.raises(DepotDamaged):
        Patient(Shaky(damaged, damaged, FILES)).get(KEY)


def test_whoever_waits_gives_up_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FIRST_PAUSE_SECONDS", 60.0)
    patient = Patient(Shaky(away(), FILES))
    threading.Timer(0.01, patient.stop).start()
    with pytest.raises(EngineBusy):
        patient.get(KEY)
