"""Sampler weights on their way between processes: over a depot far away, and let go of while a run goes on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tinker
from living import Server, wait_for
from loops import train
from tinker import types

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

PROMPT = types.ModelInput.from_ints([5, 6, 7])
GREEDY = types.SamplingParams(max_tokens=8, temperature=0.0)
RULES = {
    "OPENRL_RETENTION__UNNAMED_PER_RUN": "2",
    "OPENRL_RETENTION__UNUSED_SECONDS": "0",
    "OPENRL_SAMPLE__POLICY_CACHE_MB": "1",
}


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One train worker and two sample workers that share a cache, with the depot on another disk."""
    depot = Path("/dev/shm") / tmp_path_factory.mktemp("depot").name
    if not depot.parent.is_dir():
        pytest.skip("no second disk on this machine")
    server = Server.start(
        tmp_path_factory.mktemp("far"),
        *("--dtype", "float32", "--no-flower", "--separate", "--train-workers", "1", "--sample-workers", "2"),
        OPENRL_DEPOT_URL=f"file://{depot}",
        **RULES,
    )
    yield server
    server.stop()
    shutil.rmtree(depot, ignore_errors=True)


def test_samplers_keep_their_weights_until_these_are_removed_and_then_say_so(far: Server) -> None:
    service = tinker.ServiceClient(base_url=far.url, api_key=far.api_key)
    run = service.create_lora_training_client(base_model=far.model, rank=4, seed=1).result()
    samplers, said = [], []
    for _ in range(5):
        train(run, steps=2)
        samplers.append(run.save_weights_and_get_sampling_client().result())
        answers = [samplers[-1].sample(PROMPT, 1, GREEDY).result().sequences[0].tokens for _ in range(4)]
        assert len(set(map(tuple, answers))) == 1, "all workers sample the same weights"
        said.append(answers[0])
    kept = far.home / "policy-cache"
    assert [path for path in kept.iterdir() if not path.name.startswith(".")]
    wait_for("old weights to be removed", lambda: refused(samplers[0]), 60.0)
    assert [refused(each) for each in samplers] == [True, True, True, False, False]
    assert [each.sample(PROMPT, 1, GREEDY).result().sequences[0].tokens for each in samplers[3:]] == said[3:]


def refused(sampler: tinker.SamplingClient) -> bool:
    try:
        sampler.sample(PROMPT, 1, GREEDY).result(timeout=30)
    except tinker.NotFoundError as error:
        assert "save_weights_for_sampler(name)" in str(error)
        return True
    return False
