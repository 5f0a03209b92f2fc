import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from openrl.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointPath
from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import DepotKey, OpId, RunId, SamplerId, SessionId, TenantId
from openrl.domain.run import LoraSpec, Run
from openrl.wire.base import read_json
from openrl.wire.weights import (
    LoadInto,
    SavePolicyRequest,
    SaveWeightsRequest,
    check_same_shape,
    to_load,
    to_load_path,
    to_save,
    to_save_policy,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run(
    id=RunId("s:train:0"),
    tenant=TenantId("t"),
    session=SessionId("s"),
    base_model="toy",
    requested_model="toy",
    lora=LoraSpec(rank=8),
    created_at=NOW,
    last_request_at=NOW,
)
CHECKPOINT = Checkpoint(
    path=CheckpointPath(run=RUN.id, kind=CheckpointKind.WEIGHTS, name="a"),
    tenant=RUN.tenant,
    key=DepotKey("checkpoints/1"),
    op=OpId("o"),
    size_bytes=1,
    created_at=NOW,
    has_optimizer=True,
)


def read(shape, **fields):
    return read_json(shape, json.dumps({"model_id": "s:train:0", "seq_id": 1} | fields).encode())


def test_names_become_paths_and_never_depot_keys():
    action = to_save(read(SaveWeightsRequest, path="step-1", overwrite=True, ttl_seconds=3600), DepotKey("k"))
    assert (action.path, action.target, action.overwrite) == ("tinker://s:train:0/weights/step-1", "k", True)
    policy = to_save_policy(read(SavePolicyRequest, path="p"), DepotKey("k"), None)
    assert (policy.path, policy.sampler) == ("tinker://s:train:0/sampler_weights/p", None)
    sampler = SamplerId("s:sample:1")
    assert to_save_policy(read(SavePolicyRequest, sampling_session_seq_id=1), DepotKey("k"), sampler).sampler == sampler


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 129, "ü"])
def test_a_name_that_could_be_a_path_is_refused(name):
    with pytest.raises(FieldInvalid, match=r"path: .* cannot name a checkpoint"):
        to_save(read(SaveWeightsRequest, path=name), DepotKey("k"))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "path: send either"),
        ({"path": "a", "sampling_session_seq_id": 1}, "path: send either"),
        ({"sampling_session_seq_id": 1, "kind": "inflight"}, "kind: 'inflight' is not supported"),
    ],
)
def test_sampler_weights_are_for_a_name_or_for_a_sampler(fields, problem):
    with pytest.raises(FieldInvalid, match=problem):
        to_save_policy(read(SavePolicyRequest, **fields), DepotKey("k"), None)


def test_a_ttl_is_bounded():
    with pytest.raises(FieldInvalid, match="ttl_seconds: must be greater than or equal to 1"):
        read(SaveWeightsRequest, path="a", ttl_seconds=0)


def test_a_load_takes_its_shape_from_the_run_that_was_saved():
    action = to_load(read(LoadInto, path=str(CHECKPOINT.path), optimizer=True), CHECKPOINT, RUN)
    assert (action.source, action.lora, action.with_optimizer) == ("checkpoints/1", RUN.lora, True)


def test_what_cannot_be_loaded_is_refused():
    def load(**fields):
        return read(LoadInto, **({"path": str(CHECKPOINT.path), "optimizer": True} | fields))

    with pytest.raises(FieldInvalid, match=r"optimizer: .* holds no optimizer state"):
        to_load(load(), replace(CHECKPOINT, has_optimizer=False), RUN)
    with pytest.raises(FieldInvalid, match=r"path: .* is for sampling only"):
        to_load_path(load(path="tinker://s:train:0/sampler_weights/a"))
    with pytest.raises(FieldInvalid, match="weights_access_token: is not supported"):
        to_load_path(load(weights_access_token="x"))
    for path in (
        "a",
        "tinker://r/weights",
        "tinker://r/other/a",
        "tinker://r/weights/a/b",
        "tinker://r/weights/",
        "file://r/weights/a",
    ):
        with pytest.raises(FieldInvalid, match=r"^path: "):
            to_load_path(load(path=path))


def test_an_adapter_of_another_shape_does_not_fit():
    check_same_shape(LoraSpec(rank=8, seed=1), LoraSpec(rank=8, seed=2))
    with pytest.raises(FieldInvalid, match="path: the checkpoint has rank=8 and the run rank=16"):
        check_same_shape(LoraSpec(rank=8), LoraSpec(rank=16))


def test_all_weights_fit_a_run_of_all_weights_only():
    check_same_shape(None, None)
    with pytest.raises(FieldInvalid, match="path: the checkpoint has all weights and the run trains an adapter"):
        check_same_shape(None, LoraSpec(rank=8))
    with pytest.raises(FieldInvalid, match="path: the checkpoint has an adapter and the run trains all weights"):
        check_same_shape(LoraSpec(rank=8), None)
