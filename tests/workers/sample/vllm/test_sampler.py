"""The changes to vLLM's sampler, on the real one, without a model around it."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes import MARKS

pytestmark = MARKS


@dataclass
class Runner:
    """What the changes touch of vLLM's model runner."""

    sampler: Any
    input_batch: Any
    requests: dict[str, Any] = field(default_factory=dict)
    num_prompt_logprobs: dict[str, int] = field(default_factory=dict)
    lora_config: None = None

    def _get_prompt_logprobs_dict(self, hidden: Any, scheduled: Any) -> dict[str, Any]:
        return {}


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """vLLM's own, changed as in a worker, with a batch of two rows."""
    from vllm.platforms import current_platform
    from vllm.v1.sample.sampler import Sampler

    from workers.sample.vllm.sampler import WorkerExtension

    current_platform.import_kernels()
    # vLLM's own compiles itself when it is first called, for seconds
    monkeypatch.setattr("vllm.v1.sample.sampler.batched_count_greater_than", lambda x, values: (x >= values).sum(-1))
    runner = Runner(Sampler(), SimpleNamespace(num_reqs=2, req_ids=["a", "b"]))
    runner.requests = {name: SimpleNamespace(sampling_params=SimpleNamespace(extra_args=None)) for name in "ab"}
    runner.input_batch.num_tokens_no_spec = runner.input_batch.num_prompt_tokens = torch.zeros(2).numpy()
    extension = WorkerExtension()
    extension.model_runner = runner
    assert extension.openrl_change() == ""
    return runner.sampler


def metadata(*temperatures: float) -> Any:
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    given = torch.tensor(temperatures)
    return SamplingMetadata(
        temperature=given,
        all_greedy=not given.any(),
        all_random=bool(given.all()),
        top_p=None,
        top_k=torch.tensor([1, 1]),
        generators={},
        max_num_logprobs=2,
        logprob_token_ids=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=torch.zeros(2),
        presence_penalties=torch.zeros(2),
        repetition_penalties=torch.ones(2),
        output_token_ids=[[], []],
        spec_token_ids=[[], []],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )


@pytest.mark.parametrize("temperatures", [(0.0, 0.0), (0.5, 2.0), (0.0, 2.0)], ids=str)
def test_scores_are_scaled_and_not_cut_and_computed_once(
    sampler: Any, temperatures: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = torch.randn(2, 11, generator=torch.Generator().manual_seed(0))
    scaled = logits / torch.tensor([[each or 1.0] for each in temperatures])
    wanted = torch.log_softmax(scaled, -1).topk(2)
    computed, log_softmax = [], torch.Tensor.log_softmax
    monkeypatch.setattr(torch.Tensor, "log_softmax", lambda *a, **k: computed.append(1) or log_softmax(*a, **k))
    found = sampler(logits=logits.clone(), sampling_metadata=metadata(*temperatures))
    assert found.sampled_token_ids[:, 0].tolist() == logits.argmax(-1).tolist()
    assert found.logprobs_tensors.logprob_token_ids[:, 1:].tolist() == wanted.indices.tolist()
    torch.testing.assert_close(found.logprobs_tensors.logprobs[:, 1:], wanted.values)
    assert len(computed) == 1
