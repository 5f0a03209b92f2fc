import json

import pytest

from openrl.domain.errors import FieldInvalid
from openrl.domain.run import AdamParams
from openrl.wire.base import read_json
from openrl.wire.training import OptimStepRequest, to_optim_step


def step(**fields):
    body = json.dumps({"model_id": "m", "seq_id": 1} | fields).encode()
    return to_optim_step(read_json(OptimStepRequest, body))


def test_adam_params_arrive():
    sent = {"learning_rate": 0.1, "beta1": 0, "beta2": 0.5, "eps": 0, "weight_decay": 1, "grad_clip_norm": 2.0}
    assert step(adam_params=sent).adam == AdamParams(**sent)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"adam_params": {"learning_rate": -1e-9}}, "adam_params.learning_rate: must be greater than or equal to 0"),
        ({"adam_params": {"learning_rate": float("nan")}}, "adam_params.learning_rate: must be a finite number"),
        ({"adam_params": {"learning_rate": float("inf")}}, "adam_params.learning_rate: must be a finite number"),
        ({"adam_params": {"learning_rate": "0.1"}}, "adam_params.learning_rate: must be a valid number"),
        ({"adam_params": {"beta1": 1}}, "adam_params.beta1: must be less than 1"),
        ({"adam_params": {"beta2": -0.1}}, "adam_params.beta2: must be greater than or equal to 0"),
        ({"adam_params": {"eps": -1}}, "adam_params.eps: must be greater than or equal to 0"),
        ({"adam_params": {"weight_decay": -1}}, "adam_params.weight_decay: must be greater than or equal to 0"),
        ({"adam_params": {"grad_clip_norm": -1}}, "adam_params.grad_clip_norm: must be greater than or equal to 0"),
        ({"adam_params": {"amsgrad": True}}, "adam_params.amsgrad: is not a field of this request"),
        ({"optimizer_params": {"type": "dimuon", "learning_rate": 1}}, "optimizer_params: optimizer 'dimuon' is not"),
        ({}, "adam_params: is missing"),
    ],
)
def test_a_wrong_step_is_refused_by_the_name_of_its_field(fields, problem):
    with pytest.raises(FieldInvalid) as caught:
        step(**fields)
    assert str(caught.value).startswith(problem)
