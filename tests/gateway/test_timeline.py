import time

import httpx
import pytest

from openrl.domain.ids import RunId, SamplerId, WorkerId
from openrl.domain.stretch import Doing, Owner, Period, Stretch
from openrl.gateway.routes.timeline import router

TOY = WorkerId("toy")


@pytest.fixture
def told(gateway):
    """What the toy's device did, for a run and a sampler of one tenant beside those of another."""
    tenant, other = (gateway.services.catalog.tenant_of_key(key) for key in (gateway.key, gateway.other_key))

    def tell(run, sampler):
        mine, theirs = Owner(tenant, RunId(run)), Owner(other, RunId("secret:train:0"))
        samples, drawn = Owner(tenant, SamplerId(sampler)), Owner(other, SamplerId("secret:sample:0"))
        stretches = (
            Stretch(doing=Doing.PACK, began=10.0, ended=11.0, of=frozenset({mine, theirs})),
            Stretch(doing=Doing.SAMPLE, began=11.0, ended=12.0, of=frozenset({samples, drawn})),
            Stretch(doing=Doing.UPDATE, began=12.0, ended=12.5, of=frozenset({theirs})),
        )
        gateway.services.timelines._periods.clear()
        gateway.services.timelines.add(TOY, Period(began=10.0, ended=12.0, stretches=stretches[:2]))
        gateway.services.timelines.add(TOY, Period(began=12.0, ended=14.0, stretches=stretches[2:], left_out=3))

    return tell


def asked(gateway, key=None, **query):
    return httpx.get(f"{gateway.url}{router.prefix}/timeline", params=query, headers={"x-api-key": key or gateway.key})


def test_a_tenant_sees_all_stretches_and_names_of_its_own_only(gateway, http, told):
    session = http.session()
    run = http.run(session)
    sampler = http.sampler(session)
    told(run, sampler)
    before = time.time()
    answer = asked(gateway).json()
    assert before <= answer["now"] <= time.time()
    (worker,) = answer["workers"]
    assert {name: worker[name] for name in ("worker", "models", "began", "ended", "left_out")} == {
        "worker": "toy",
        "models": ["toy"],
        "began": 10.0,
        "ended": 14.0,
        "left_out": 3,
    }
    assert worker["stretches"] == [
        {"doing": "pack", "began": 10.0, "ended": 11.0, "runs": [run], "samplers": [], "others": 1},
        {"doing": "sample", "began": 11.0, "ended": 12.0, "runs": [], "samplers": [sampler], "others": 1},
        {"doing": "update", "began": 12.0, "ended": 12.5, "runs": [], "samplers": [], "others": 1},
    ]
    assert "secret" not in asked(gateway).text
    assert run not in asked(gateway, gateway.other_key).text and sampler not in asked(gateway, gateway.other_key).text


def test_a_sample_is_its_runs(gateway, http, told):
    """Of an unnamed version and of a saved one."""
    run = http.run()
    saved = http.done("save_weights_for_sampler", model_id=run, path="kept", seq_id=1)
    path = http.result(saved["request_id"])["path"]
    sampler = http.sampler(run.partition(":")[0], model_path=path)
    unnamed = http.done("save_weights_for_sampler", model_id=run, seq_id=2, sampling_session_seq_id=5)
    for each in (sampler, http.result(unnamed["request_id"])["sampling_session_id"]):
        told(run, each)
        (worker,) = asked(gateway).json()["workers"]
        assert (worker["stretches"][1]["runs"], worker["stretches"][1]["samplers"]) == ([run], [each])


def test_only_what_ended_since_then_is_told(gateway, told):
    told("a:train:0", "a:sample:0")
    (worker,) = asked(gateway, since=11.5).json()["workers"]
    assert (worker["began"], [each["doing"] for each in worker["stretches"]]) == (10.0, ["sample", "update"])
    (worker,) = asked(gateway, since=12.0).json()["workers"]
    assert (worker["began"], [each["doing"] for each in worker["stretches"]]) == (12.0, ["update"])
    (worker,) = asked(gateway, since=99.0).json()["workers"]
    assert (worker["began"], worker["ended"], worker["left_out"], worker["stretches"]) == (None, None, 0, [])


@pytest.mark.parametrize("since", ["soon", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_named(gateway, since):
    answer = asked(gateway, since=since)
    assert answer.status_code == 422 and "since" in answer.text


def test_only_with_a_key(gateway):
    assert httpx.get(f"{gateway.url}{router.prefix}/timeline").status_code == 401
