import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path

from attacking import Attack, attack_on

from workers.reward.sandbox.nursery import Nursery


@pytest.fixture(params=["execute", "source"])
def attack(nursery: Nursery, request: pytest.FixtureRequest) -> Attack:
    return attack_on(nursery, request.param)
