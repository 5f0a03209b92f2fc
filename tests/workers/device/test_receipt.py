import pytest

from workers.device.receipt import PackPart, batch_metrics, step_metrics


def part(tenant: str, tokens: int, waited_seconds: float = 0.0) -> PackPart:
    return PackPart(tenant=tenant, tokens=tokens, waited_seconds=waited_seconds)


def test_device_seconds_of_a_pack_are_shared_out_by_tokens() -> None:
    receipts = batch_metrics([part("a", 10), part("a", 30), part("b", 60)], 2.0, 0.1)
    assert [each["device_seconds:sum"] for each in receipts] == pytest.approx([0.2, 0.6, 1.2])
    assert [each["pack_share:mean"] for each in receipts] == pytest.approx([0.1, 0.3, 0.6])
    assert all((each["pack_batches:mean"], each["pack_tenants:mean"]) == (3.0, 2.0) for each in receipts)


def test_a_batch_alone_has_the_whole_pack() -> None:
    (receipt,) = batch_metrics([part("a", 5, waited_seconds=1.5)], 0.5, 0.25)
    assert receipt == {
        "pack_share:mean": 1.0,
        "pack_batches:mean": 1.0,
        "pack_tenants:mean": 1.0,
        "padding_share:mean": 0.25,
        "queue_seconds:max": 1.5,
        "device_seconds:sum": 0.5,
    }


def test_batches_without_tokens_have_even_parts() -> None:
    assert [each["device_seconds:sum"] for each in batch_metrics([part("a", 0)] * 4, 2.0, 0.0)] == [0.5] * 4


def test_every_name_says_how_chunks_are_put_together() -> None:
    (receipt,) = batch_metrics([part("a", 5)], 0.5, 0.0)
    assert {name.partition(":")[2] for name in receipt} <= {"mean", "max", "sum"}


def test_steps_that_ran_together_share_their_time_evenly() -> None:
    assert step_metrics(0.25, 2.0, 4) == {"queue_seconds": 0.25, "device_seconds": 0.5, "steps_together": 4.0}
