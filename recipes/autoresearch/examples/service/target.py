"""Reinforcement learning on any service that speaks the Tinker API, small enough for its tiniest model.

The model is to speak in vowels: a reply is rewarded for the share of them, and for using several. Grading takes
`--reward-seconds` of somebody else's time for each update, as a program's tests or a judge would. What counts, whatever
the weights, is the share of vowels in replies to words that training never shows.
"""

import argparse
import json
import os
import random
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import tinker
from tinker import types

HELD_OUT = 16
VOWELS = "aeiou"


def word(rng: random.Random) -> str:
    return "".join(rng.choice("bcdfghklmnprst") + rng.choice(VOWELS) for _ in range(3))


def share(text: str) -> float:
    """Of vowels among the letters and signs of a reply."""
    return fmean(sign in VOWELS for sign in text.lower()) if text else 0.0


def reward(text: str, options: argparse.Namespace) -> float:
    variety = len({sign for sign in text.lower() if sign in VOWELS}) / len(VOWELS)
    return float(options.weight_share * share(text) + options.weight_variety * variety)


def replies(sampler: Any, tokenizer: Any, words: list[str], size: int, temperature: float) -> list[Any]:
    """For each word its prompt, and `size` sampled replies to it."""
    params = types.SamplingParams(max_tokens=12, temperature=temperature)
    prompts = [tokenizer.encode(f"Say {one}: ") for one in words]
    asked = [sampler.sample(types.ModelInput.from_ints(prompt), size, params) for prompt in prompts]
    return [(prompt, answer.result().sequences) for prompt, answer in zip(prompts, asked, strict=True)]


def datum(prompt: list[int], sequence: Any, advantage: float) -> types.Datum:
    zeros = [0.0] * (len(prompt) - 1)
    inputs = {
        "target_tokens": np.array(prompt[1:] + sequence.tokens, dtype=np.int64),
        "logprobs": np.array(zeros + sequence.logprobs, dtype=np.float32),
        "advantages": np.array(zeros + [advantage] * len(sequence.tokens), dtype=np.float32),
    }
    tensors = {name: types.TensorData.from_numpy(array) for name, array in inputs.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(prompt + sequence.tokens[:-1]), loss_fn_inputs=tensors)


def step(trainer: Any, tokenizer: Any, options: argparse.Namespace, rng: random.Random) -> float:
    """Samples, waits for the grading, updates; returns the mean share of vowels."""
    sampler = trainer.save_weights_and_get_sampling_client().result()
    words = [word(rng) for _ in range(options.rollouts // options.group_size)]
    groups = replies(sampler, tokenizer, words, options.group_size, options.temperature)
    time.sleep(options.reward_seconds)
    data, shares = [], []
    for prompt, sequences in groups:
        texts = [tokenizer.decode(sequence.tokens) for sequence in sequences]
        shares += map(share, texts)
        scores = np.array([reward(text, options) for text in texts])
        if scores.std() > 0:
            advantages = (scores - scores.mean()) / scores.std()
            data += [datum(prompt, *both) for both in zip(sequences, advantages.tolist(), strict=True)]
    if data:
        gradients = trainer.forward_backward(data, "importance_sampling")
        trainer.optim_step(types.AdamParams(learning_rate=options.lr)).result()
        gradients.result()
    return fmean(shares)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-model", default=os.environ.get("BASE_MODEL", "tiny"), help="[BASE_MODEL]")
    parser.add_argument("--steps", type=int, default=12, help="updates")
    parser.add_argument("--rollouts", type=int, default=32, help="replies for one update")
    parser.add_argument("--reward-seconds", type=float, default=1.0, help="that grading takes, for each update")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--weight-share", type=float, default=1.0)
    parser.add_argument("--weight-variety", type=float, default=0.2)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--problems", type=int, required=True, help="which words are held out")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    options = parse()
    service = tinker.ServiceClient()
    asked = service.create_lora_training_client(options.base_model, rank=8, seed=options.seed)
    trainer = asked.result()
    tokenizer, rng = trainer.get_tokenizer(), random.Random(options.seed)
    with (options.out / "metrics.jsonl").open("w") as log:
        for number in range(options.steps):
            log.write(json.dumps({"step": number, "share": step(trainer, tokenizer, options, rng)}) + "\n")
    unseen = random.Random(f"held out {options.problems}")
    words = [word(unseen) for _ in range(HELD_OUT)]
    answers = replies(trainer.save_weights_and_get_sampling_client().result(), tokenizer, words, 8, 1.0)
    scores = [fmean(share(tokenizer.decode(one.tokens)) for one in sequences) for _, sequences in answers]
    (options.out / "problems.json").write_text(json.dumps(scores))
    print(f"vowels: {fmean(scores):.4f}")


if __name__ == "__main__":
    main()
