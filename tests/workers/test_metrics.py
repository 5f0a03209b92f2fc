"""What a device's collector tells."""

from openrl.domain.worker import DeviceUse, SideUse
from workers.metrics import Device


def test_an_engine_that_does_not_know_its_passes_tells_none() -> None:
    use = DeviceUse(seconds=2.0, busy_seconds=1.0, sample=SideUse(seconds=1.0, tokens=7))
    told = {family.name: family for family in Device(lambda: use, lambda: 3, passes=False).collect()}
    assert "openrl_device_side_passes" not in told
    tokens = {sample.labels["side"]: sample.value for sample in told["openrl_device_side_tokens"].samples}
    assert tokens == {"train": 0, "sample": 7}
    assert told["openrl_sample_rows"].samples[0].value == 3
    with_them = Device(lambda: use, lambda: 3).collect()
    assert "openrl_device_side_passes" in {family.name for family in with_them}
