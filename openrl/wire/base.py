"""What all JSON requests share: strict reading, and errors that name the field. Knows no endpoint."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from openrl.domain.errors import BodyInvalid, CallerError, FieldInvalid

#: Problems told at once; the rest would not fit a log line.
TOLD = 3
#: How pydantic begins: `Input should be …`, `String should have …`.
SHOULD = re.compile(r"^[A-Z][a-z]+ should")
INT32 = 2**31 - 1
INT64 = 2**63 - 1
#: Characters of all keys and values of one `user_metadata`.
METADATA_CHARS = 32_768
METADATA_KEYS = 1024


class Wire(BaseModel, frozen=True, extra="forbid", strict=True, protected_namespaces=()):
    """A request as the SDK spells it. An unknown field is refused: it could change what is computed."""


class TurnRequest(Wire):
    """A request that takes a turn of a run."""

    model_id: str = Field(min_length=1)
    seq_id: int = Field(ge=1, le=INT32)


class NamedTurn(NamedTuple):
    model_id: str
    seq_id: int


AnyWire = TypeVar("AnyWire", bound=Wire)


def read_json(shape: type[AnyWire], body: bytes) -> AnyWire:
    """Raises BodyInvalid for what is no JSON, FieldInvalid naming each field that breaks a rule."""
    try:
        return shape.model_validate_json(body)
    except ValidationError as error:
        raise fault_of(error.errors(include_url=False)) from None


def named_turn(body: bytes) -> NamedTurn | None:
    """The turn that a refused JSON request meant to take, if it says so much."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):  # no JSON, or nested deeper than anybody means
        return None
    if not isinstance(fields, dict):
        return None
    model, number = fields.get("model_id"), fields.get("seq_id")
    if isinstance(model, str) and _is_text(model) and type(number) is int and 1 <= number <= INT32:
        return NamedTurn(model, number)
    return None


def _is_text(value: str) -> bool:
    """Half a surrogate pair can be spelled in JSON; no database takes it."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


def fault_of(errors: list[Any], root: str = "body") -> CallerError:
    """One error for all the problems a validation found."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return BodyInvalid(first["msg"])
    rest = [f"{field_path(each['loc'], root)}: {problem_of(each)}" for each in errors[1:TOLD]]
    return FieldInvalid(field_path(first["loc"], root), "; ".join([problem_of(first), *rest]))


def field_path(loc: tuple[int | str, ...], root: str = "body") -> str:
    """`("data", 3, "tokens")` as `data[3].tokens`; an empty path is the body itself."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return path.removeprefix(".") or root


def problem_of(error: Mapping[str, Any]) -> str:
    match error["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "is not a field of this request"
        case _:
            text: str = error["msg"]
            return SHOULD.sub("must", text.removeprefix("Value error, "))


def as_text(value: object) -> object:
    """Metadata values as strings, which is all that responses may carry."""
    if not isinstance(value, dict):
        return value
    if len(value) > METADATA_KEYS:
        raise ValueError(f"has {len(value)} keys; at most {METADATA_KEYS} are kept")
    texts = {key: each if isinstance(each, str) else json.dumps(each) for key, each in value.items()}
    size = sum(len(key) + len(each) for key, each in texts.items())
    if size > METADATA_CHARS:
        raise ValueError(f"holds {size} characters; at most {METADATA_CHARS} are kept")
    return texts


#: Free-form notes of the user; other values than strings are kept as their JSON text.
Metadata = Annotated[dict[str, str], BeforeValidator(as_text)]
#: Seconds until a checkpoint may be deleted: one second to ten years.
Ttl = Annotated[int, Field(ge=1, le=315_360_000)]
Seed = Annotated[int, Field(ge=0, le=INT64)]
