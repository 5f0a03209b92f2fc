"""OpenRL's own API: what devices did of late, and when."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from openrl.domain.checkpoint import CheckpointPath
from openrl.domain.errors import SamplerNotFound
from openrl.domain.ids import RunId, SamplerId
from openrl.domain.stretch import Doing, Period, Stretch
from openrl.domain.worker import WorkerInfo
from openrl.gateway.call import Call, answered, json_response

router = APIRouter(prefix="/openrl/v1")

Since = Annotated[float, Query(ge=0, allow_inf_nan=False)]


@router.get("/timeline")
async def get_timeline(request: Request, since: Since = 0.0) -> Response:
    return await answered(request, lambda call: _timeline(call, since))


def _timeline(call: Call, since: float) -> Response:
    """Of the workers that are alive, what ended after `since`; whose it was, of the tenant's own."""
    services = call.services
    told = [(worker, services.timelines.of(worker.id)) for worker in services.workers() if worker.cards]
    workers = [
        _worker_fields(call, worker, [each for each in periods if each.ended > since], since)
        for worker, periods in told
        if periods
    ]
    return json_response({"now": time.time(), "workers": workers})


def _worker_fields(call: Call, worker: WorkerInfo, periods: list[Period], since: float) -> dict[str, Any]:
    stretches = [each for period in periods for each in period.stretches if each.ended > since]
    return {
        "worker": worker.id,
        "models": [card.name for card in worker.cards],
        "began": periods[0].began if periods else None,
        "ended": periods[-1].ended if periods else None,
        "left_out": sum(period.left_out for period in periods),
        "stretches": [_stretch_fields(call, each) for each in stretches],
    }


def _stretch_fields(call: Call, stretch: Stretch) -> dict[str, Any]:
    own = sorted(owner.name for owner in stretch.of if owner.tenant == call.tenant)
    samplers = [SamplerId(name) for name in own] if stretch.doing is Doing.SAMPLE else []
    runs = {_run_of(call, sampler) for sampler in samplers} if samplers else set(own)
    return {
        "doing": stretch.doing,
        "began": stretch.began,
        "ended": stretch.ended,
        "runs": sorted(run for run in runs if run is not None),
        "samplers": samplers,
        "others": len(stretch.of) - len(own),
    }


def _run_of(call: Call, name: SamplerId) -> RunId | None:
    """Whose weights it samples; None for the base model, and for batches of rollouts, which are no samplers."""
    try:
        sampler = call.services.sampler(call.tenant, name)
    except SamplerNotFound:
        return None
    return sampler.run or (CheckpointPath.parse(sampler.model_path).run if sampler.model_path else None)
