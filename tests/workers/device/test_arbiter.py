from workers.device.arbiter import Arbiter, Side


def run(arbiter: Arbiter, *, train_seconds: float, sample_seconds: float, turns: int) -> dict[Side, float]:
    used = {Side.TRAIN: 0.0, Side.SAMPLE: 0.0}
    for _ in range(turns):
        side = arbiter.next(train=True, sample=True)
        assert side is not None
        seconds = train_seconds if side is Side.TRAIN else sample_seconds
        used[side] += seconds
        arbiter.spent(side, seconds, contested=True)
    return used


def test_contested_time_is_shared_evenly_however_long_a_turn_takes() -> None:
    used = run(Arbiter(), train_seconds=1.0, sample_seconds=0.05, turns=400)
    assert 0.85 < used[Side.TRAIN] / used[Side.SAMPLE] < 1.2


def test_a_side_alone_is_always_served() -> None:
    arbiter = Arbiter(lead_seconds=3.0)
    assert arbiter.next(train=True, sample=False) is Side.TRAIN
    assert arbiter.next(train=False, sample=True) is Side.SAMPLE
    assert arbiter.next(train=False, sample=False) is None


def test_uncontested_time_is_not_held_against_a_side() -> None:
    arbiter = Arbiter()
    for _ in range(100):
        arbiter.spent(Side.TRAIN, 10.0, contested=False)
    assert arbiter.next(train=True, sample=True) is Side.TRAIN


def test_a_long_turn_does_not_starve_its_side_for_as_long_again() -> None:
    arbiter = Arbiter(most_lead_seconds=2.0)
    arbiter.spent(Side.TRAIN, 60.0, contested=True)
    served = 0.0
    while arbiter.next(train=True, sample=True) is Side.SAMPLE:
        arbiter.spent(Side.SAMPLE, 0.5, contested=True)
        served += 0.5
    assert served == 2.0
