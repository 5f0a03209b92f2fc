"""Base models that no worker serves: refused, or waited for where the operator listed them."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from openrl.config import Gateway, Settings, Train, load
from openrl.domain.errors import SettingInvalid
from openrl.domain.ids import WorkerId
from openrl.domain.worker import Role, WorkerInfo
from openrl.gateway.awaited import awaited_card, awaited_names, missing_worker
from openrl.gateway.doubles import toy_gateway
from openrl.testing import TOY_CARD
from queues.lanes import reward_queues, sample_queues, train_queue

OTHER = replace(TOY_CARD, name="org/other", aliases=())
REASON = "no worker serves org/other at the moment; waiting for one"


def worker(role: Role, *cards) -> WorkerInfo:
    started = datetime.now(UTC)
    return WorkerInfo(id=WorkerId(role), role=role, host="here", pid=1, cards=cards, slots=1, started_at=started)


def why(queue: str, *workers: WorkerInfo) -> str | None:
    return missing_worker(queue, workers, ("toy", "org/other"), lanes=2)


def test_an_op_that_nobody_takes_is_told_which_worker_is_missing() -> None:
    device, trains, samples = (worker(role, OTHER) for role in (Role.DEVICE, Role.TRAIN, Role.SAMPLE))
    train, sample = train_queue("org/other"), sample_queues("org/other", 2)[1]
    assert why(train) == why(sample) == why(train, worker(Role.DEVICE, TOY_CARD)) == REASON
    assert why(train, samples) == why(sample, trains) == REASON
    assert why(train, device) is why(train, trains) is why(sample, device) is why(sample, samples) is None
    assert why(reward_queues(2)[0], device) == "no reward worker is up; waiting for one"
    assert why(reward_queues(2)[0], worker(Role.REWARD)) is None


def test_a_listed_model_is_known_by_all_its_names(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, gateway=Gateway(awaited_models=("smollm2-135m", "org/other")))
    card = awaited_card("HuggingFaceTB/SmolLM2-135M-Instruct", settings)
    assert card is not None
    assert (card.name, card.bounded, card.max_lora_rank) == ("smollm2-135m", False, settings.train.max_lora_rank)
    assert not card.full_runs
    enabled = settings.model_copy(update={"train": Train(full_runs=True)})
    full = awaited_card("smollm2-135m", enabled)
    assert full is not None and full.full_runs
    assert card.answers_to("HuggingFaceTB/SmolLM2-135M-Instruct")
    other = awaited_card("org/other", settings)
    assert other is not None and other.tokenizer_id == "org/other"
    assert awaited_card("org/else", settings) is None


def test_a_model_that_is_waited_for_answers_to_the_names_that_the_operator_gave_it(tmp_path: Path) -> None:
    wanted = Gateway(awaited_models=("tiny", "org/other"), awaited_aliases=("mine=org/other", "small=tiny"))
    card = awaited_card("mine", Settings(data_dir=tmp_path, gateway=wanted))
    assert card is not None
    assert (card.name, card.aliases) == ("org/other", ("mine",))
    listed = Settings(data_dir=tmp_path, gateway=wanted)
    assert awaited_names(listed) == ["tiny", "small", "org/other", "mine"]


@pytest.mark.parametrize("pair", ["mine", "=org/other", "mine="])
def test_an_alias_that_names_no_model_is_refused(pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRL_GATEWAY__AWAITED_ALIASES", pair)
    with pytest.raises(SettingInvalid, match="write NAME=MODEL"):
        load()


@pytest.fixture
def gateway(tmp_path):
    listed = Gateway(poll_seconds=0.1, awaited_models=("org/other",), awaited_aliases=("mine=org/other",))
    with toy_gateway(tmp_path, gateway=listed) as up:
        up.worker.hears = lambda bell: "other" not in bell.queue
        yield up


@pytest.fixture
def http(gateway):
    headers = {"x-api-key": gateway.key}
    with httpx.Client(base_url=f"{gateway.url}/api/v1", headers=headers) as client:
        yield client


def session(http) -> str:
    return http.post("create_session", json={"sdk_version": "0"}).json()["session_id"]


def create(http, model: str, **lora: int) -> httpx.Response:
    fields = {"session_id": session(http), "model_seq_id": 0, "base_model": model, "lora_config": {"rank": 8} | lora}
    return http.post("create_model", json=fields)


def test_a_model_that_nobody_listed_is_refused_as_ever(http) -> None:
    refused = create(http, "org/else")
    assert refused.status_code == 422 and "served models: toy" in refused.text


def test_a_run_on_a_listed_model_waits_and_says_why(http) -> None:
    created = create(http, "org/other")
    assert created.status_code == 200
    waiting = http.post("retrieve_future", json={"request_id": created.json()["request_id"]})
    assert waiting.status_code == 408
    assert waiting.json() == {"queue_state": "paused_capacity", "queue_state_reason": REASON}
    info = http.post("get_info", json={"model_id": created.json()["model_id"]}).json()
    assert info["model_data"]["tokenizer_id"] == "org/other"


def test_what_can_be_checked_without_the_worker_is_checked_at_once(http) -> None:
    assert "lora_config.rank: is 999" in create(http, "org/other", rank=999).text
    sampler = {"session_id": session(http), "sampling_session_seq_id": 0, "base_model": "org/other"}
    name = http.post("create_sampling_session", json=sampler).json()["sampling_session_id"]
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
    wanted = {"sampling_session_id": name, "seq_id": 0, "prompt": prompt}
    refused = http.post("asample", json={**wanted, "sampling_params": {}})
    assert (
        refused.status_code == 422 and "max_tokens: is missing; nobody knows the context of org/other" in refused.text
    )
    taken = http.post("asample", json={**wanted, "sampling_params": {"max_tokens": 2}})
    assert http.post("retrieve_future", json={"request_id": taken.json()["request_id"]}).json()["queue_state_reason"]


def test_an_op_that_a_worker_takes_is_active(gateway, http) -> None:
    gateway.worker.hears = lambda bell: False
    created = create(http, "toy").json()
    waiting = http.post("retrieve_future", json={"request_id": created["request_id"]})
    assert waiting.json() == {"queue_state": "active"}


def test_a_listed_model_is_among_those_supported_by_its_names_alone(http) -> None:
    models = http.get("get_server_capabilities").json()["supported_models"]
    assert models[-2:] == [{"model_name": "org/other"}, {"model_name": "mine"}]
    assert {model["model_name"] for model in models} == {"toy", "openrl/toy", "org/other", "mine"}


def test_a_run_of_a_model_that_is_waited_for_may_be_asked_for_by_an_alias(http) -> None:
    assert create(http, "mine").status_code == create(http, "org/other").status_code == 200
