"""Runs and the checkpoints that were saved of them."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from openrl.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointPath
from openrl.domain.ids import RunId
from openrl.domain.run import Run
from openrl.gateway.call import Call, answered, json_response
from openrl.wire.base import INT64, read_json
from openrl.wire.weights import TtlRequest

router = APIRouter(prefix="/api/v1")

_TYPES = {CheckpointKind.WEIGHTS: "training", CheckpointKind.SAMPLER_WEIGHTS: "sampler"}

Limit = Annotated[int, Query(ge=0, le=1000)]
Offset = Annotated[int, Query(ge=0, le=INT64)]


@router.get("/training_runs")
async def list_runs(request: Request, limit: Limit = 20, offset: Offset = 0) -> Response:
    return await answered(request, lambda call: _list_runs(call, limit, offset))


@router.get("/training_runs/{run}")
async def get_run(request: Request, run: str) -> Response:
    return await answered(
        request, lambda call: json_response(_run_fields(call, call.services.catalog.run(call.tenant, RunId(run))))
    )


@router.get("/training_runs/{run}/checkpoints")
async def list_run_checkpoints(request: Request, run: str) -> Response:
    return await answered(request, lambda call: _list_of_run(call, RunId(run)))


@router.get("/checkpoints")
async def list_checkpoints(request: Request, limit: Limit = 100, offset: Offset = 0) -> Response:
    return await answered(request, lambda call: _list(call, limit, offset))


@router.put("/training_runs/{run}/checkpoints/{kind}/{name}/ttl")
async def set_ttl(request: Request, run: str, kind: str, name: str) -> Response:
    return await answered(request, lambda call: _set_ttl(call, _path(run, kind, name)))


@router.delete("/training_runs/{run}/checkpoints/{kind}/{name}")
async def delete_checkpoint(request: Request, run: str, kind: str, name: str) -> Response:
    return await answered(request, lambda call: _delete(call, _path(run, kind, name)))


def _path(run: str, kind: str, name: str) -> CheckpointPath:
    return CheckpointPath.parse(f"tinker://{run}/{kind}/{name}")


def _list_runs(call: Call, limit: int, offset: int) -> Response:
    runs, total = call.services.catalog.runs(call.tenant, limit, offset)
    return json_response(
        {"training_runs": [_run_fields(call, run) for run in runs], "cursor": _cursor(limit, offset, total)}
    )


def _list_of_run(call: Call, run: RunId) -> Response:
    call.services.run(call.tenant, run)
    checkpoints = call.services.catalog.run_checkpoints(call.tenant, run)
    return json_response({"checkpoints": [_checkpoint_fields(each) for each in checkpoints]})


def _list(call: Call, limit: int, offset: int) -> Response:
    checkpoints, total = call.services.catalog.checkpoints(call.tenant, limit, offset)
    return json_response(
        {"checkpoints": [_checkpoint_fields(each) for each in checkpoints], "cursor": _cursor(limit, offset, total)}
    )


def _set_ttl(call: Call, path: CheckpointPath) -> Response:
    wanted = read_json(TtlRequest, call.body())
    call.services.catalog.set_checkpoint_ttl(call.tenant, path, wanted.ttl_seconds)
    return json_response({})


def _delete(call: Call, path: CheckpointPath) -> Response:
    """The row first: bytes without a row cost room, a row without bytes breaks whoever loads it."""
    key = call.services.catalog.delete_checkpoint(call.tenant, path)
    call.services.ledger.retire(key, None)
    call.services.depot.delete_folder(key)
    return json_response({})


def _cursor(limit: int, offset: int, total: int) -> dict[str, int]:
    return {"offset": offset, "limit": limit, "total_count": total}


def _run_fields(call: Call, run: Run) -> dict[str, Any]:
    saved = call.services.catalog.run_checkpoints(call.tenant, run.id)
    return {
        "training_run_id": run.id,
        "base_model": run.requested_model,
        "model_owner": run.tenant,
        "is_lora": run.lora is not None,
        "lora_rank": run.lora.rank if run.lora is not None else None,
        "corrupted": False,
        "last_request_time": _time(run.last_request_at),
        "last_checkpoint": _last(saved, CheckpointKind.WEIGHTS),
        "last_sampler_checkpoint": _last(saved, CheckpointKind.SAMPLER_WEIGHTS),
        "user_metadata": run.user_metadata,
    }


def _last(saved: list[Checkpoint], kind: CheckpointKind) -> dict[str, Any] | None:
    latest = [checkpoint for checkpoint in saved if checkpoint.path.kind is kind][-1:]
    return _checkpoint_fields(latest[0]) if latest else None


def _checkpoint_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "checkpoint_id": f"{checkpoint.path.kind}/{checkpoint.path.name}",
        "checkpoint_type": _TYPES[checkpoint.path.kind],
        "time": _time(checkpoint.created_at),
        "tinker_path": str(checkpoint.path),
        "size_bytes": checkpoint.size_bytes,
        "public": False,
        "user_metadata": checkpoint.user_metadata,
        "expires_at": checkpoint.expires_at and _time(checkpoint.expires_at),
    }


def _time(moment: datetime) -> str:
    return moment.isoformat()
