import struct
from collections.abc import Sequence

import pytest

from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import FieldInvalid
from openrl.domain.losses import RULES, check_config, check_datum, filled_config
from openrl.domain.tensor import DType, Tensor


def ints(values: Sequence[int], shape: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(dtype=DType.INT64, shape=shape or (len(values),), data=struct.pack(f"<{len(values)}q", *values))


def reals(values: Sequence[float], shape: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(dtype=DType.FLOAT32, shape=shape or (len(values),), data=struct.pack(f"<{len(values)}f", *values))


def datum(**inputs: Tensor) -> Datum:
    return Datum(tokens=Tensor(dtype=DType.INT32, shape=(3,), data=struct.pack("<3i", 5, 6, 7)), inputs=inputs)


TARGETS = ints([6, 7, 8])
ONES = reals([1.0, 1.0, 1.0])
GOOD = {
    Loss.CROSS_ENTROPY: {"target_tokens": TARGETS, "weights": ONES},
    Loss.IMPORTANCE_SAMPLING: {"target_tokens": TARGETS, "logprobs": ONES, "advantages": ONES, "mask": ONES},
    Loss.PPO: {"target_tokens": TARGETS, "logprobs": ONES, "advantages": ONES, "clip_low_threshold": reals([0.5])},
    Loss.CISPO: {"target_tokens": TARGETS, "logprobs": ONES, "advantages": ONES, "clip_high_threshold": ONES},
    Loss.DRO: {"target_tokens": TARGETS, "logprobs": ONES, "advantages": ints([1, 0, 1])},
}


def test_every_loss_has_a_rule() -> None:
    assert set(RULES) == set(Loss)


@pytest.mark.parametrize("loss", Loss)
def test_good_datums_pass(loss: Loss) -> None:
    check_datum(loss, datum(**GOOD[loss]), "data[0]")


@pytest.mark.parametrize("loss", Loss)
def test_each_required_input_is_missed_by_name(loss: Loss) -> None:
    for name in RULES[loss].required:
        inputs = {key: value for key, value in GOOD[loss].items() if key != name}
        with pytest.raises(FieldInvalid, match=rf"data\[4\]\.loss_fn_inputs\.{name}: is missing"):
            check_datum(loss, datum(**inputs), "data[4]")


@pytest.mark.parametrize(
    ("loss", "change", "problem"),
    [
        (Loss.PPO, {"logprobs": reals([1.0, 1.0])}, r"logprobs: shape is \[2\]; it must be \[N\] with N = 3"),
        (Loss.PPO, {"target_tokens": ONES}, "target_tokens: dtype is float32"),
        (Loss.PPO, {"target_tokens": ints([1] * 6, (3, 2))}, r"shape is \[3, 2\]"),
        (Loss.PPO, {"clip_low_threshold": reals([1.0, 2.0])}, "clip_low_threshold: shape"),
        (Loss.PPO, {"surprise": ONES}, "surprise: ppo takes only"),
        (Loss.IMPORTANCE_SAMPLING, {"clip_low_threshold": ONES}, "importance_sampling takes only"),
        (Loss.CROSS_ENTROPY, {"weights": reals([1.0] * 6, (3, 2))}, "weights: shape .* the shape of target_tokens"),
    ],
)
def test_what_does_not_fit_is_named(loss: Loss, change: dict[str, Tensor], problem: str) -> None:
    with pytest.raises(FieldInvalid, match=problem):
        check_datum(loss, datum(**GOOD[loss] | change), "data[0]")


def test_cross_entropy_takes_several_targets_per_token() -> None:
    inputs = {"target_tokens": ints([1] * 6, (3, 2)), "weights": reals([0.5] * 6, (3, 2))}
    check_datum(Loss.CROSS_ENTROPY, datum(**inputs), "data[0]")


def test_config_is_filled_with_defaults_and_bounded() -> None:
    assert filled_config(Loss.PPO, {"clip_high_threshold": 1.5}) == {
        "clip_low_threshold": 0.8,
        "clip_high_threshold": 1.5,
    }
    assert filled_config(Loss.CISPO, {}) == {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}
    assert filled_config(Loss.DRO, {}) == {"beta": 0.05}
    check_config(Loss.PPO, {"clip_low_threshold": 0.0})
    for config in ({"beta": 1.0}, {"clip_low_threshold": -0.1}, {"clip_low_threshold": 2.0}):
        with pytest.raises(FieldInvalid, match="loss_fn_config"):
            check_config(Loss.PPO, config)
    with pytest.raises(FieldInvalid, match="nan"):
        check_config(Loss.DRO, {"beta": float("nan")})


def test_a_datum_without_tokens_is_refused() -> None:
    empty = Datum(tokens=Tensor(dtype=DType.INT32, shape=(0,), data=b""), inputs={})
    with pytest.raises(FieldInvalid, match="no tokens"):
        check_datum(Loss.PPO, empty, "data[0]")
