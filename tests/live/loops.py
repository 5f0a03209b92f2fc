"""Small training loops on the tiny model, as a user would write them."""

import tinker

PROMPT = [11, 12, 13, 14]
TARGET = [101, 202, 303]


def sft_datum(prompt: list[int] = PROMPT, target: list[int] = TARGET) -> tinker.Datum:
    tokens = prompt + target
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "weights": [0.0] * (len(prompt) - 1) + [1.0] * len(target),
        },
    )


def greedy(sampler: tinker.SamplingClient, prompt: list[int] = PROMPT, tokens: int = 3) -> list[int]:
    params = tinker.SamplingParams(max_tokens=tokens, temperature=0.0, stop=[])
    answer = sampler.sample(tinker.ModelInput.from_ints(prompt), 1, params).result()
    return list(answer.sequences[0].tokens)


def train(client: tinker.TrainingClient, steps: int, target: list[int] = TARGET, rate: float = 1e-2) -> list[float]:
    """A pipelined loop: each step's passes and its optimizer step are in flight together. Answers the losses."""
    losses = []
    for _ in range(steps):
        first = client.forward_backward([sft_datum(target=target)], "cross_entropy")
        second = client.forward_backward([sft_datum(prompt=[21, 22, 23], target=target)], "cross_entropy")
        stepped = client.optim_step(tinker.AdamParams(learning_rate=rate, grad_clip_norm=1.0))
        losses.append(first.result().metrics["loss:sum"] + second.result().metrics["loss:sum"])
        stepped.result()
    return losses
