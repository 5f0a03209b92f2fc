"""Reward functions that the operator has to switch on: refused before anything is queued where they are off."""

import pytest

from openrl.config import Reward
from openrl.domain.errors import CallerError
from openrl.gateway.offers import SOURCE_CHARS, require_offered

OPEN = Reward(source=True, webhook_urls=("https://a.example.com/v1",))
SOURCE = {"source": "def score(text, context, params): return 0"}


def refused(name, params, reward=OPEN, known=("exact", "source", "webhook")):
    try:
        require_offered(name, params, reward, known, field="reward", params_field="params")
    except CallerError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("name", "params", "reward", "known", "problem"),
    [
        ("exact", {}, Reward(), ("exact",), None),
        ("source", SOURCE, OPEN, ("exact", "source"), None),
        ("source", SOURCE, OPEN, (), None),
        ("source", SOURCE, Reward(), ("exact", "source"), "reward: 'source' is not offered here: the operator lets"),
        ("source", SOURCE, OPEN, ("exact",), "reward: 'source' is not offered here: no reward worker that is up has"),
        ("source", {}, OPEN, ("source",), "params.source: is missing"),
        ("source", {"source": " \n"}, OPEN, ("source",), "params.source: is missing"),
        (
            "source",
            {"source": "a" * (SOURCE_CHARS + 1)},
            OPEN,
            (),
            "params.source: has 32001 characters",
        ),
        ("webhook", {"url": "https://a.example.com/v1/x"}, OPEN, (), None),
        ("webhook", {"url": "https://a.example.com/v1"}, Reward(), (), "reward: 'webhook' is not offered here: the"),
        ("webhook", {"url": "https://b.example.com/v1"}, OPEN, (), "params.url: https://b.example.com/v1 is not among"),
        ("webhook", {}, OPEN, (), "params.url: must be a URL"),
    ],
)
def test_what_is_off_is_refused_with_what_switches_it_on(name, params, reward, known, problem):
    told = refused(name, params, reward, known)
    assert told is None if problem is None else told.startswith(problem)


def test_requests_for_what_is_off_are_refused_when_they_are_made(http, gateway):
    batch = {
        "key": "a-key-of-source",
        "policy": {"base_model": "toy"},
        "prompts": [{"text": "A"}],
        "group_size": 1,
        "sampling": {"max_tokens": 3},
        "rewards": [{"name": "length"}, {"name": "source", "params": SOURCE}],
    }
    response = http.post(f"{gateway.url}/openrl/v1/rollouts", json=batch)
    assert response.status_code == 422
    assert response.json()["detail"].startswith("rewards[1].name: 'source' is not offered here")
    score = {"key": "a-key-of-webhooks", "reward": "webhook", "texts": ["a"], "params": {"url": "https://a.b/"}}
    response = http.post(f"{gateway.url}/openrl/v1/score", json=score)
    assert response.status_code == 422
    assert response.json()["detail"].startswith("reward: 'webhook' is not offered here")
