import json
from collections.abc import Callable
from typing import Any

import pytest

from openrl.wire.base import read_json
from openrl.wire.rollouts import RolloutRequest

Asking = Callable[..., RolloutRequest]


@pytest.fixture(scope="session")
def asking() -> Asking:
    """Makes a request for rollouts that a judge with these parameters is asked about."""

    def asking(params: dict[str, Any], prompts: Any = ({"text": "A"},), **fields: Any) -> RolloutRequest:
        body = {
            "key": "12345678",
            "policy": {"base_model": "toy"},
            "prompts": list(prompts),
            "group_size": 2,
            "sampling": {"max_tokens": 3},
            "rewards": [{"name": "exact"}, {"name": "judge", "params": params}],
        }
        return read_json(RolloutRequest, json.dumps(body | fields).encode())

    return asking
