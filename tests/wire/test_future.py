import json

from openrl.domain.ids import OpId, RunId, SamplerId, TenantId
from openrl.domain.op import Status
from openrl.domain.outcome import (
    Category,
    Failure,
    Record,
    RunCreated,
    Scores,
    StepResult,
    WeightsLoaded,
    WeightsSaved,
)
from openrl.wire.future import answer_of


def answer(kind, **outcome):
    status = Status.FAILED if "failure" in outcome else Status.DONE
    record = Record(id=OpId("o"), tenant=TenantId("t"), kind=kind, status=status, attempts=1, **outcome)
    media_type, body = answer_of(record)
    assert media_type == "application/json"
    return json.loads(body)


def test_results_are_spelled_as_the_sdk_reads_them():
    assert answer("create_run", result=RunCreated(run=RunId("r"))) == {"type": "create_model", "model_id": "r"}
    loaded = answer("load_weights", result=WeightsLoaded(run=RunId("r"), path="tinker://r/weights/a"))
    assert loaded == {"type": "load_weights", "model_id": "r", "path": "tinker://r/weights/a"}
    saved = answer("save_weights", result=WeightsSaved(path="tinker://r/weights/a"))
    assert saved == {"type": "save_weights", "path": "tinker://r/weights/a"}
    policy = answer("save_policy", result=WeightsSaved(path=None, sampler=SamplerId("s")))
    assert policy == {"type": "save_weights_for_sampler", "path": None, "sampling_session_id": "s"}
    assert answer("score_texts", result=Scores(values=(1.0,))) == {"values": [1.0], "info": [], "parts": []}


def test_a_metric_that_is_not_a_number_stays_one():
    metrics = answer("optim_step", result=StepResult(metrics={"grad_norm": float("nan")}))["metrics"]
    assert metrics["grad_norm"] != metrics["grad_norm"]


def test_a_failure_tells_who_can_put_it_right_in_lower_case():
    failure = Failure(error="WornOut", message="given up", category=Category.SERVER)
    assert answer("optim_step", failure=failure) == {"error": "given up", "category": "server"}
