import json
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable

from openrl.rewards import FieldInvalid, RewardResult, Words, reward
from workers.reward.functions.fences import inside
from workers.reward.functions.fields import as_json, found


@reward(version="1", pure=True, overrun=0.0)
def score(text: str, context: Words, params: Words) -> RewardResult:
    """1 where the text (or what stands in its last ```json fence) is JSON that `context.schema`, else `params.schema`,
    allows; of the draft 2020-12, and nothing is fetched. `parsed` tells whether it was JSON at all."""
    field, schema = found(context, params, "schema")
    validator = _validator(field, schema)
    try:
        value = json.loads(inside(text, "json"))
    except (ValueError, RecursionError) as problem:
        return RewardResult(0.0, parts={"parsed": 0.0}, info={"error": str(problem)[:300]})
    try:
        error = next(validator.iter_errors(value), None)
    except Unresolvable as problem:
        raise FieldInvalid(field, f"cannot be followed: {problem}") from None
    except RecursionError:
        _require_end(validator, field)
        return RewardResult(0.0, parts={"parsed": 1.0}, info={"error": "nested too deeply to be checked"})
    if error is None:
        return RewardResult(1.0, parts={"parsed": 1.0})
    return RewardResult(0.0, parts={"parsed": 1.0}, info={"error": f"{error.json_path}: {error.message}"[:300]})


def _require_end(validator: Any, field: str) -> None:
    """Raises FieldInvalid for a schema that leads back to itself whatever it is shown: the text is not at fault."""
    values: tuple[Any, ...] = (None, {}, [], "", 0)
    for value in values:
        try:
            next(validator.iter_errors(value), None)
        except RecursionError:
            raise FieldInvalid(field, "cannot be followed: it leads back to itself") from None


@lru_cache(256)
def _validator(field: str, text: str) -> Any:
    schema = as_json(field, text, dict, bool)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise FieldInvalid(field, f"is no JSON schema: {error.message[:200]}") from None
    return Draft202012Validator(schema)
