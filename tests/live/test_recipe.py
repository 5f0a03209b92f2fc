"""The recipe rlvr in both its variants, with its reward installed beside the reward workers, as its README says."""

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import tinker
from living import Server, sdk_environment

import openrl

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parents[2] / "recipes" / "rlvr"
QUICK = ["--steps", "2", "--groups", "2", "--group-size", "4", "--seed", "1"]


@pytest.fixture(scope="module")
def plugged_server(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Iterator[Server]:
    """Where `pip install ./recipes/rlvr` was done before it started."""
    source, site = tmp_path_factory.mktemp("source") / "rlvr", tmp_path_factory.mktemp("site")
    shutil.copytree(FOLDER, source)  # building leaves files beside the source
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(source)]
    subprocess.run(install, check=True)
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    home = tmp_path_factory.mktemp("plugged")
    server = Server.start(home, "--no-flower", model=str(smollm2), OPENRL_MODEL_ALIASES="smollm2-135m", PYTHONPATH=path)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def recipe() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import run

        yield run


def start(server: Server, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    where = {"TINKER_BASE_URL": server.url, "TINKER_API_KEY": server.api_key}
    command = [sys.executable, str(FOLDER / script), *QUICK, *options]
    return subprocess.run(command, capture_output=True, text=True, env=sdk_environment() | where, timeout=500)


@pytest.mark.parametrize("script", ["run.py", "run_rollouts.py"])
def test_both_variants_run_to_their_end(plugged_server: Server, script: str, tmp_path: Path) -> None:
    done = start(plugged_server, script, "--base-model", "smollm2-135m", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    block = dict(re.findall(r"^(\w+): (.+)$", done.stdout, re.MULTILINE))
    assert block["steps"] == "2" and 0 <= float(block["reward_last"]) <= 1
    assert block["weights"].startswith("tinker://")
    assert len((tmp_path / "seed-1.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_both_variants_see_the_same_replies_and_rewards(plugged_server: Server, recipe: ModuleType) -> None:
    """With a seed; without one both draw anew, as the recipe does."""
    import reward
    from transformers import AutoTokenizer

    url, key = plugged_server.url, plugged_server.api_key
    service = tinker.ServiceClient(base_url=url, api_key=key)
    sampler = service.create_sampling_client(base_model="smollm2-135m").result()
    tokenizer = AutoTokenizer.from_pretrained(plugged_server.model)
    problems = [reward.draw(rng) for rng in [random.Random(3)] for _ in range(4)]
    params = tinker.SamplingParams(max_tokens=28, temperature=1.0, seed=7)
    here = asyncio.run(recipe.roll_out(sampler, tokenizer, problems, 8, params))
    prompts = [openrl.Prompt(problem.messages(), context={"facts": problem.facts}) for problem in problems]
    sampling = {"max_tokens": 28, "temperature": 1.0, "seed": 7}
    with openrl.Client(url, key) as client:
        there = client.rollouts.create(
            prompts, "smollm2-135m", group_size=8, sampling=sampling, reward="facts_to_json", on_failure="fail"
        ).results()
    assert [group.rewards for group in there] == [tuple(one.score for one in group) for group in here]
    assert [[list(one.tokens) for one in group.rollouts] for group in there] == [
        [one.tokens for one in group] for group in here
    ]
    assert len({reward for group in there for reward in group.rewards}) > 1


def test_a_reward_that_is_not_installed_is_told_before_anything_is_trained(server: Server, tmp_path: Path) -> None:
    done = start(server, "run_rollouts.py", "--base-model", "tiny", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "no reward function 'facts_to_json'" in done.stderr and "pip install ./recipes/rlvr" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
