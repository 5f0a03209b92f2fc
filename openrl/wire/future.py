"""Polling for results: the requests, and a settled op as the SDK expects it."""

import json
from typing import Any, NamedTuple

from openrl.domain.errors import FieldInvalid
from openrl.domain.judge import Judged
from openrl.domain.op import SavePolicy
from openrl.domain.outcome import (
    BatchResult,
    Failure,
    Record,
    Result,
    RunCreated,
    Sampled,
    Scores,
    StepResult,
    WeightsLoaded,
    WeightsSaved,
)
from openrl.domain.rollout import Graded, RolledOut
from openrl.wire.base import Wire
from openrl.wire.batch import batch_output
from openrl.wire.samples import sample_response

JSON = "application/json"
PROTOBUF = "application/x-protobuf"


class RetrieveFuture(Wire):
    request_id: str
    allow_metadata_only: bool = False


class CancelFuture(Wire):
    request_id: str


class Answer(NamedTuple):
    media_type: str
    body: bytes


def answer_of(record: Record) -> Answer:
    """The answer for a settled op. A failure is a 200 too: the SDK makes a typed error of it and stops asking. Raises
    FieldInvalid for an op that no SDK sent."""
    if record.failure is not None:
        return _json(failure_fields(record.failure))
    assert record.result is not None, f"{record.id} is {record.status} without a result"
    match record.result:
        case BatchResult():
            return Answer(PROTOBUF, batch_output(record.result))
        case Sampled():
            return Answer(PROTOBUF, sample_response(record.result.result))
        case RolledOut() | Judged() | Graded():
            raise FieldInvalid("request_id", "belongs to a batch of rollouts, whose events tell what came of it")
        case _:
            return _json(result_fields(record.kind, record.result))


def failure_fields(failure: Failure) -> dict[str, Any]:
    return {"error": failure.message, "category": str(failure.category)}


def result_fields(kind: str, result: Result) -> dict[str, Any]:
    """JSON results; `kind` is that of the action."""
    match result:
        case RunCreated():
            return {"type": "create_model", "model_id": result.run}
        case WeightsLoaded():
            return {"type": "load_weights", "model_id": result.run, "path": result.path}
        case StepResult():
            return {"metrics": result.metrics}
        case WeightsSaved() if kind == SavePolicy.kind:
            return {"type": "save_weights_for_sampler", "path": result.path, "sampling_session_id": result.sampler}
        case WeightsSaved():
            return {"type": "save_weights", "path": result.path}
        case Scores():
            return {"values": list(result.values), "info": list(result.info), "parts": list(result.parts)}
        case _:
            raise AssertionError(f"{type(result).__name__} travels as protobuf")


def _json(fields: dict[str, Any]) -> Answer:
    """NaN is kept as the bare token, which the SDK reads; `null` would break its types."""
    return Answer(JSON, json.dumps(fields).encode())
