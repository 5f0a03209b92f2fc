"""Log-probabilities of samples and prompts against those that training finds for the same weights."""

import pytest
import torch

from openrl.domain.datum import Datum, Loss
from openrl.domain.tensor import DType
from workers.model.adapter_files import to_files
from workers.model.arrays import from_domain, to_domain
from workers.train.batch import Batch
from workers.train.engine import TrainEngine

PROMPT = list(range(20, 33))
FAMILIES = ("llama", "qwen2", "gemma2", "gemma3_text", "phi3", "mistral", "smollm3")


def trained(base, run, files, sequences):
    """Log-probabilities of each token but the first of whole sequences, by the train engine."""
    engine = TrainEngine(base, name="tiny")
    engine.load(run, files, with_optimizer=False)
    data = [
        Datum(
            tokens=to_domain(tokens[:-1], DType.INT32),
            inputs={
                "target_tokens": to_domain(tokens[1:], DType.INT64),
                "weights": to_domain([1.0] * (len(tokens) - 1), DType.FLOAT32),
            },
        )
        for tokens in sequences
    ]
    (result,) = engine.forward_backward([Batch(run_id=run, loss=Loss.CROSS_ENTROPY, data=data, forward_only=True)])
    return [from_domain(each) for each in result.logprobs]


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_and_prompts_are_scored_as_training_scores_them(lab, family):
    base = lab.base(family)
    engine, adapters = lab.engine(base), [lab.adapter(base, 1), lab.adapter(base, 2, 2, "mlp")]
    for number, adapter in enumerate(adapters):
        engine.put(f"p{number}", *adapter)
    for number, adapter in enumerate(adapters):
        fields = {"policy": f"p{number}", "prompt_logprobs": True}
        asked = [lab.ask(PROMPT[:length], 12, seed=seed, **fields) for length, seed in ((13, 3), (5, None), (9, 4))]
        others = [lab.ask(PROMPT[:length], 9, policy=policy) for length, policy in ((6, "p0"), (7, None), (8, "p1"))]
        results = lab.run(engine, *asked, *others)[:3]
        drawn = [lab.tokens(result.sequences[0]) for result in results]
        files = to_files(*adapter, "tiny")
        sequences = [[*request.prompt, *tokens] for request, tokens in zip(asked, drawn, strict=True)]
        for request, result, expected in zip(
            asked, results, trained(base, f"r{number}", files, sequences), strict=True
        ):
            length = len(request.prompt) - 1
            prompt = torch.tensor(lab.array(result.prompt_logprobs)[1:])
            sampled = torch.tensor(lab.array(result.sequences[0].logprobs))
            assert torch.allclose(prompt, expected[:length], atol=1e-4)
            assert torch.allclose(sampled, expected[length:], atol=1e-4)


def test_differences_between_log_probabilities_scale_with_the_inverse_of_temperature(lab):
    """Of two tokens at one place: the normaliser drops out."""
    base = lab.base()
    engine = lab.engine(base)
    gaps = {}
    for temperature in (0.5, 1.0, 2.0):
        request = lab.ask(PROMPT, 1, temperature=temperature, seed=1, top_p=0.5, topk_sample_logprobs=6)
        top = lab.run(engine, request)[0].sequences[0].top_logprobs
        values = lab.array(top.logprobs)[0]
        gaps[temperature] = (lab.array(top.token_ids)[0].tolist(), values[:-1] - values[1:])
    for temperature, (ids, gap) in gaps.items():
        assert ids == gaps[1.0][0]
        assert gap * temperature == pytest.approx(gaps[1.0][1], abs=1e-4)
