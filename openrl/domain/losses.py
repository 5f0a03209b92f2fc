"""What each loss takes: inputs, dtypes, shapes and config, as data. It knows no array library and no formula.

The gateway refuses a request by this table and the train engine relies on it, so both say the same. The formulas are in
`workers/train/losses.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import FieldInvalid
from openrl.domain.tensor import DType, Tensor

TARGETS = "target_tokens"


class Extent(StrEnum):
    """How an input's shape follows from the datum's N input tokens."""

    TOKENS = "[N]"
    TOKENS_OR_CHOICES = "[N] or [N, K]"
    LIKE_TARGETS = "the shape of target_tokens"
    TOKENS_OR_ONE = "[N] or [1]"


INTEGERS = frozenset({DType.INT64, DType.INT32})
NUMBERS = frozenset(DType)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRule:
    dtypes: frozenset[DType]
    extent: Extent

    def problem(self, tensor: Tensor, length: int, targets: Tensor) -> str | None:
        """What is wrong with `tensor` in a datum of `length` tokens, or None."""
        if tensor.dtype not in self.dtypes:
            return f"dtype is {tensor.dtype}; send {' or '.join(sorted(self.dtypes))}"
        if not self._fits(tensor.shape, length, targets.shape):
            return f"shape is {list(tensor.shape)}; it must be {self.extent} with N = {length} input tokens"
        return None

    def _fits(self, shape: tuple[int, ...], length: int, targets: tuple[int, ...]) -> bool:
        match self.extent:
            case Extent.TOKENS:
                return shape == (length,)
            case Extent.TOKENS_OR_CHOICES:
                return shape[:1] == (length,) and len(shape) <= 2 and all(shape)
            case Extent.LIKE_TARGETS:
                return shape == targets
            case Extent.TOKENS_OR_ONE:
                return shape in ((length,), (1,), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRule:
    """A number in `loss_fn_config`; `low` is the smallest value that makes sense, included."""

    default: float
    low: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule:
    required: dict[str, InputRule]
    optional: dict[str, InputRule] = field(default_factory=dict)
    config: dict[str, ConfigRule] = field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, InputRule]:
        return self.required | self.optional


_TARGETS = InputRule(dtypes=INTEGERS, extent=Extent.TOKENS)
_REALS = InputRule(dtypes=NUMBERS, extent=Extent.TOKENS)
_BOUND = InputRule(dtypes=NUMBERS, extent=Extent.TOKENS_OR_ONE)

_RL = {TARGETS: _TARGETS, "logprobs": _REALS, "advantages": _REALS}
#: Both multiply a token's loss; absent means 1.
_FACTORS = {"weights": _REALS, "mask": _REALS}
#: Per token, or one for the datum; they win over the config keys of the same names.
_CLIPS = {"clip_low_threshold": _BOUND, "clip_high_threshold": _BOUND}

RULES: dict[Loss, LossRule] = {
    Loss.CROSS_ENTROPY: LossRule(
        required={
            TARGETS: InputRule(dtypes=INTEGERS, extent=Extent.TOKENS_OR_CHOICES),
            "weights": InputRule(dtypes=NUMBERS, extent=Extent.LIKE_TARGETS),
        },
    ),
    Loss.IMPORTANCE_SAMPLING: LossRule(required=_RL, optional=_FACTORS),
    Loss.PPO: LossRule(
        required=_RL,
        optional=_FACTORS | _CLIPS,
        config={"clip_low_threshold": ConfigRule(default=0.8), "clip_high_threshold": ConfigRule(default=1.2)},
    ),
    Loss.CISPO: LossRule(
        required=_RL,
        optional=_FACTORS | _CLIPS,
        config={"clip_low_threshold": ConfigRule(default=0.0), "clip_high_threshold": ConfigRule(default=4.0)},
    ),
    Loss.DRO: LossRule(required=_RL, optional=_FACTORS, config={"beta": ConfigRule(default=0.05)}),
}


def check_config(loss: Loss, config: Mapping[str, float], where: str = "loss_fn_config") -> None:
    """Raises FieldInvalid for a key the loss does not know or a value out of bounds."""
    rules = RULES[loss].config
    for key, value in config.items():
        if key not in rules:
            raise FieldInvalid(f"{where}.{key}", f"{loss} has no such setting; it takes {_listed(rules)}")
        if not isfinite(value) or value < rules[key].low:
            raise FieldInvalid(f"{where}.{key}", f"is {value}; it must be a number of at least {rules[key].low:g}")
    filled = filled_config(loss, config)
    if filled.get("clip_low_threshold", 0.0) > filled.get("clip_high_threshold", 0.0):
        raise FieldInvalid(f"{where}.clip_low_threshold", "is above clip_high_threshold; both bound the ratio itself")


def filled_config(loss: Loss, config: Mapping[str, float]) -> dict[str, float]:
    """`config` with the defaults of what it leaves out."""
    return {key: float(config.get(key, rule.default)) for key, rule in RULES[loss].config.items()}


def check_datum(loss: Loss, datum: Datum, where: str) -> None:
    """Raises FieldInvalid unless `datum` has exactly the inputs that `loss` takes, in the right dtypes and shapes.

    `where` is the datum's path in the request, such as `data[3]`. Token ranges are left to `limits.check_tokens`.
    """
    rule = RULES[loss]
    if datum.length == 0:
        raise FieldInvalid(f"{where}.model_input", "has no tokens; leave empty datums out")
    for name in rule.required:
        if name not in datum.inputs:
            raise FieldInvalid(f"{where}.loss_fn_inputs.{name}", f"is missing; {loss} needs {_listed(rule.required)}")
    for name, tensor in datum.inputs.items():
        known = rule.inputs.get(name)
        if known is None:
            raise FieldInvalid(f"{where}.loss_fn_inputs.{name}", f"{loss} takes only {_listed(rule.inputs)}")
        problem = known.problem(tensor, datum.length, datum.inputs[TARGETS])
        if problem is not None:
            raise FieldInvalid(f"{where}.loss_fn_inputs.{name}", problem)


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names) or "none"
