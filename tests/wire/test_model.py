import json
from dataclasses import replace

import pytest

from openrl.domain.errors import FieldInvalid, FullRunsOff
from openrl.testing import TOY_CARD
from openrl.wire.base import read_json
from openrl.wire.model import CreateModel, to_lora


def lora(full=False, card=TOY_CARD, **fields):
    request = {"session_id": "s", "model_seq_id": 0, "base_model": "toy", "lora_config": {"rank": 8}} | fields
    return to_lora(read_json(CreateModel, json.dumps(request).encode()), card, full=full)


def test_a_lora_config_arrives():
    spec = lora(lora_config={"rank": 32, "seed": 5, "train_mlp": False})
    assert (spec.rank, spec.seed, spec.train_attn, spec.train_mlp, spec.train_unembed) == (32, 5, True, False, True)


@pytest.mark.parametrize(
    "fields", [{"lora_config": None}, {"full": True}, {"full": True, "lora_config": {"rank": 999, "seed": 1}}]
)
def test_all_weights_are_trained_where_no_adapter_is_described_or_it_is_asked_for(fields):
    assert lora(**fields) is None
    with pytest.raises(FullRunsOff):
        lora(**fields, card=replace(TOY_CARD, full_runs=False))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"lora_config": {"rank": 0}}, "lora_config.rank: must be greater than or equal to 1"),
        ({"lora_config": {"rank": 33}}, "lora_config.rank: is 33; toy takes ranks 1..32"),
        ({"lora_config": {"rank": "8"}}, "lora_config.rank: must be a valid integer"),
        ({"lora_config": {"rank": 8, "alpha": 16}}, "lora_config.alpha: is not a field of this request"),
        (
            {"lora_config": {"rank": 8, "train_attn": False, "train_mlp": False, "train_unembed": False}},
            "lora_config: train_attn, train_mlp and train_unembed are all false",
        ),
        (
            {"full": True, "lora_config": {"rank": 8, "train_mlp": False}},
            "lora_config: a run of all weights trains every",
        ),
        (
            {"optimizer_config": {"type": "dimuon", "version": 1}},
            "optimizer_config: {'type': 'dimuon', 'version': 1} is",
        ),
        ({"model_seq_id": -1}, "model_seq_id: must be greater than or equal to 0"),
    ],
)
def test_a_wrong_model_is_refused_by_the_name_of_its_field(fields, problem):
    with pytest.raises(FieldInvalid) as caught:
        lora(**fields)
    assert str(caught.value).startswith(problem)
