import pytest

from workers.train.group import place as places
from workers.train.group.place import Place, place_in

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "some",
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "first",
}


def test_torchrun_tells_the_place() -> None:
    place = place_in(TORCHRUN)
    assert place == Place(rank=3, world=4, local_rank=1, local_world=2, host="first")
    assert not place.leads
    first = place_in(TORCHRUN | {"RANK": "0"})
    assert first is not None and first.leads


def test_other_launchers_variables_make_no_group() -> None:
    assert place_in({"WORLD_SIZE": "4", "RANK": "0"}) is None
    assert place_in(TORCHRUN | {"WORLD_SIZE": "1"}) is None


def test_the_processes_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_in(TORCHRUN)
    assert place is not None
    monkeypatch.setattr(places, "usable_cores", lambda: 9)
    assert (place.threads(0), place.threads(6)) == (4, 6)
    monkeypatch.setattr(places, "usable_cores", lambda: 1)
    assert place.threads(0) == 1
