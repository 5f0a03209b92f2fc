"""The RL of the recipe text_to_sql, from a checkpoint of its SFT, with the settings and the reward of this folder.

What counts is not up to either: the share of questions about unseen databases that the trained model answers right, as
the recipe measures it. Every attempt draws as many replies, however many it draws to one question.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, required=True, help="the folder of the recipe text_to_sql")
    parser.add_argument("--start", default=os.environ.get("SFT_STATE"), help="checkpoint to begin from [SFT_STATE]")
    parser.add_argument("--base-model", default=os.environ.get("BASE_MODEL"), help="without --start [BASE_MODEL]")
    parser.add_argument("--seed", type=int, required=True, help="of the training problems")
    parser.add_argument("--problems", type=int, required=True, help="which unseen problems: 0 or 1")
    parser.add_argument("--eval-problems", type=int, default=64, help="how many of them")
    parser.add_argument("--steps", type=int, default=8, help="updates")
    parser.add_argument("--rollouts", type=int, default=16, help="replies to draw for one update")
    parser.add_argument("--out", type=Path, required=True)
    for name, value in json.loads((HERE / "settings.json").read_text()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args()


def words(given: argparse.Namespace) -> list[str]:
    """What the recipe's own command line would be."""
    chosen = {
        "--mode": "rl",
        "--rewards": "local",
        "--steps": given.steps,
        "--groups": max(1, given.rollouts // given.group_size),
        "--group-size": given.group_size,
        "--rl-lr": given.rl_lr,
        "--temperature": given.temperature,
        "--weight-match": given.weight_match,
        "--weight-compiles": given.weight_compiles,
        "--weight-similarity": given.weight_similarity,
        "--eval-problems": given.eval_problems,
        "--seed": given.seed,
        "--out": given.out,
        "--start": given.start,
        "--base-model": given.base_model,
    }
    return [str(word) for pair in chosen.items() if pair[1] is not None for word in pair]


async def train(options: Any, problems_seed: int) -> list[dict[str, Any]]:
    """Trains; returns the answers to the unseen problems, one for each."""
    import run
    import tinker
    from journal import Journal
    from replies import answered
    from rich.progress import Progress
    from shaping import reward

    class Trial(run.Run):
        def _to_be_saved(self, stage: str, done: int) -> bool:
            return False

    run.reward = reward
    with Progress(disable=True) as progress, tinker.ServiceClient(base_url=options.base_url) as service:
        trial = Trial(service, options, Journal(options.out, options.lasting(), resume=False), progress)
        await trial._begin()
        await trial._rl()
        sampler = await trial.trainer.save_weights_and_get_sampling_client()
        unseen = trial.source.problems(options.eval_problems, 1 + problems_seed, unseen=True)
        return await answered(sampler, trial.chat, unseen, trial.scorer, options.max_tokens)


def main() -> None:
    given = parse()
    sys.path[1:1] = [str(given.recipe.resolve())]
    from options import parse_options
    from replies import summed_up

    answers = asyncio.run(train(parse_options("", words(given)), given.problems))
    (given.out / "unseen.json").write_text(json.dumps(answers))
    for name, value in summed_up(answers).items():
        print(f"{name}_unseen: {value:.4f}")


if __name__ == "__main__":
    main()
