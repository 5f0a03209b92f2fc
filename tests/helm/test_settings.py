"""What manifests set are settings, and those among the values arrive."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from charting import CHART, PRESETS, Document, Workload, environment, refused, rendered, workloads
from everything import INSIDE, ON, OUTSIDE, merged

from openrl.config import OTHER_VARIABLES, Settings, load

SECRETS = {
    "OPENRL_REDIS_URL": "redis://host:6379/0",
    "OPENRL_CATALOG_URL": "postgresql://host/openrl",
    "OPENRL_API_KEY": "tml-x",
    "OPENRL_WORKER_ID": "pod",
}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_container_starts_with_settings_that_openrl_accepts(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    containers = [(work, each) for work in workloads(rendered(preset=preset)) for each in work.containers]
    assert containers
    for work, container in containers:
        settings = settings_of(container, monkeypatch)
        assert str(settings.data_dir) == "/data" or work.component in ("flower", "valkey", "test"), work.name


@pytest.mark.parametrize("base", [INSIDE, OUTSIDE], ids=["inside", "outside"])
def test_settings_among_the_values_arrive(base: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {
        "train": {"pack_tokens": 8_000_000, "memory_gb": 1.5, "full_runs": True},
        "retention": {"silent_seconds": 100000000},
    }
    text = rendered("--set", "networkPolicy.enabled=false", values=merged(merged(ON, base), {"settings": own}))
    for work in workloads(text):
        for container in work.pod["containers"]:
            if "OPENRL_DATA_DIR" in environment(container) and work.component != "migrate":
                settings = settings_of(container, monkeypatch)
                assert (settings.train.pack_tokens, settings.train.memory_gb, settings.train.full_runs) == (
                    8_000_000,
                    1.5,
                    True,
                )
                assert settings.retention.silent_seconds == 1e8, work.name
                assert settings.log.format == "json"


def settings_of(container: Document, monkeypatch: pytest.MonkeyPatch) -> Settings:
    found = environment(container)
    with monkeypatch.context() as patch:
        for name, value in found.items():
            if name.startswith("OPENRL_"):
                patch.setenv(name, SECRETS[name] if value is None else value)
        return load()


def test_the_nearest_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    values = merged(
        ON,
        {
            "settings": {"worker": {"appetite": 1, "threads": 1}, "train": {"pack_tokens": 1}},
            "workers": {
                "all": {"settings": {"worker": {"appetite": 2}}},
                "train": {"settings": {"worker": {"appetite": 3}}},
            },
        },
    )
    found = {
        work.component: settings_of(work.pod["containers"][0], monkeypatch)
        for work in workloads(rendered(values=values))
        if work.component in ("gateway", "device", "train")
    }
    assert {name: each.worker.appetite for name, each in found.items()} == {"gateway": 1, "device": 2, "train": 3}
    assert {each.worker.threads for each in found.values()} == {1}
    assert found["device"].train.full_runs, "of the model"
    assert not found["train"].train.full_runs


def test_what_the_chart_sets_cannot_be_set_twice() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["$defs"]["settings"]
    told = {
        name
        for preset in PRESETS
        for work in workloads(rendered(preset=preset))
        for each in work.containers
        for name in environment(each)
    }
    own = {name for name in told if name.startswith("OPENRL_")} - OTHER_VARIABLES - {"OPENRL_LOG__FORMAT"}
    assert len(own) > 10
    for variable in own:
        assert not allows(schema, variable.removeprefix("OPENRL_").lower().split("__")), variable


def allows(schema: Mapping[str, Any], path: list[str]) -> bool:
    return not path or (path[0] in schema.get("properties", {}) and allows(schema["properties"][path[0]], path[1:]))


def test_a_mistyped_setting_is_refused() -> None:
    assert "'pack_tokenz' not allowed" in refused("--set", "settings.train.pack_tokenz=1")
    assert "want integer" in refused("--set-string", "settings.train.pack_tokens=many")
    assert "'hots' not allowed" in refused("--set", "ingress.hots=h")
    assert "env" in refused("--set", "workers.all.env.OPENRL_WORKER__THREADS=1"), "there is one way to say it"


def test_a_gpu_worker_never_falls_back_to_the_cpu() -> None:
    devices = {
        work.name: environment(work.pod["containers"][0]).get("OPENRL_WORKER__DEVICE") for work in model_workers(ON)
    }
    assert devices == {
        "Deployment/openrl-device-one": "cpu",
        "Deployment/openrl-train-two": "cuda",
        "Deployment/openrl-sample-two": "cuda",
    }


def test_gpus_are_processes_of_a_train_worker_and_tensor_parallel_of_a_sample_worker() -> None:
    found = {
        work.component: work.pod["containers"][0]
        for work in model_workers(merged(ON, {"workers": {"all": {"gpus": 2}}}))
    }
    assert found["train"]["args"] == ["--processes", "2"]
    assert environment(found["sample"])["OPENRL_SAMPLE__VLLM__TENSOR_PARALLEL"] == "2"
    assert "nvidia.com/gpu" not in found["device"]["resources"]["limits"]
    assert (
        found["train"]["resources"]["limits"]["nvidia.com/gpu"]
        == found["sample"]["resources"]["limits"]["nvidia.com/gpu"]
        == 2
    )


@pytest.mark.parametrize(("accepted", "args"), [(False, None), (True, ["--accept-terms"])])
def test_terms_are_agreed_to_by_the_operator_alone(accepted: bool, args: list[str] | None) -> None:
    model = {"name": "gemma3-270m", "pull": True, "acceptTerms": accepted, "device": {"gpus": 0}}
    (worker,) = model_workers(merged(ON, {"models": [model]}))
    (pull,) = worker.pod["initContainers"]
    assert pull["command"] == ["openrl", "models", "pull", "gemma3-270m"]
    assert pull.get("args") == args


def model_workers(values: Document) -> list[Workload]:
    return [work for work in workloads(rendered(values=values)) if work.component in ("device", "train", "sample")]


def test_requests_wait_for_models_by_all_their_names_and_within_the_widest_bounds() -> None:
    def gateway(*models: Document, **settings: object) -> dict[str, str | None]:
        text = rendered(values=merged(ON, {"models": [*models], "settings": settings}))
        (found,) = (work for work in workloads(text) if work.component == "gateway")
        return environment(found.pod["containers"][0])

    small = {"name": "a", "aliases": ["x", "z"], "train": {}, "settings": {"train": {"max_lora_rank": 8}}}
    full = {"name": "b", "train": {"settings": {"train": {"full_runs": True}}}}
    assert gateway(small)["OPENRL_GATEWAY__AWAITED_ALIASES"] == "x=a,z=a"
    assert gateway(small)["OPENRL_TRAIN__MAX_LORA_RANK"] == "8"
    assert "OPENRL_TRAIN__FULL_RUNS" not in gateway(small)
    both = gateway(small, full, train={"pack_tokens": 7})
    assert both["OPENRL_TRAIN__MAX_LORA_RANK"] == str(Settings().train.max_lora_rank)
    assert both["OPENRL_TRAIN__FULL_RUNS"] == "true"
    assert both["OPENRL_TRAIN__PACK_TOKENS"] == "7"
    assert not {name for name in gateway(full | {"train": {}}) if name.startswith("OPENRL_TRAIN")}


def test_a_pod_has_longer_than_its_drain() -> None:
    drain = int(Settings().worker.drain_seconds)
    assert "graceSeconds" in refused("--set", f"reward.graceSeconds={drain}")
    assert rendered("--set", f"reward.graceSeconds={drain + 1}", preset="kind")


def test_requests_wait_for_every_model() -> None:
    (gateway,) = (work for work in workloads(rendered(values=ON)) if work.component == "gateway")
    assert environment(gateway.pod["containers"][0])["OPENRL_GATEWAY__AWAITED_MODELS"] == "org/one,org/two"
