import pytest
import torch

PROMPTS = ([5, 9, 11], list(range(20, 41)), [3], list(range(60, 72)))
FAMILIES = (
    *("llama", "qwen2", "qwen3", "mistral", "phi", "phi3", "gemma", "gemma2", "gemma3_text"),
    *("smollm3", "olmo2", "olmo3", "glm4", "starcoder2"),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_decoding_in_a_mixed_batch_is_transformers_generate_alone(lab, family):
    base = lab.base(family)
    engine = lab.engine(base)
    results = lab.run(engine, *[lab.ask(prompt, 20, temperature=0.0) for prompt in PROMPTS])
    for prompt, result in zip(PROMPTS, results, strict=True):
        ids = torch.tensor([prompt])
        alone = base.module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False, eos_token_id=None
        )
        assert lab.tokens(result.sequences[0]) == alone[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_requests_that_come_while_others_run_decode_the_same(lab, family):
    engine = lab.engine(lab.base(family), max_rows=3)
    alone = [lab.run(engine, lab.ask(prompt, 12, temperature=0.0))[0] for prompt in PROMPTS]
    futures = []
    for prompt in PROMPTS:
        futures.append(engine.submit(lab.ask(prompt, 12, temperature=0.0)))
        engine.step()
        engine.step()
    together = lab.finish(engine, *futures)
    assert [lab.tokens(r.sequences[0]) for r in together] == [lab.tokens(r.sequences[0]) for r in alone]


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_logprobs_are_those_of_a_whole_forward_pass(lab, family):
    base, prompt = lab.base(family), list(range(30, 52))
    engine = lab.engine(base)
    requests = [lab.ask(some, 1, prompt_logprobs=True) for some in (prompt, prompt[:5])]
    whole, _ = lab.run(engine, *requests)
    expected = torch.log_softmax(lab.logits(base, prompt), -1)[range(21), prompt[1:]]
    assert torch.allclose(torch.tensor(lab.array(whole.prompt_logprobs)[1:]), expected, atol=1e-4)
