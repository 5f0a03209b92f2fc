"""A client as a process of its own, which may be killed: reads a batch of rollouts and tells its groups as they come.

`reader.py create` makes the batch that its standard input describes; `reader.py attach ID` comes to one made before.
Lines of JSON are told: the batch's id, each group, and how the batch stands in the end.
"""

import json
import sys
from dataclasses import asdict

import openrl


def tell(**fields: object) -> None:
    print(json.dumps(fields, default=str), flush=True)


def main() -> None:
    with openrl.Client() as client:
        if sys.argv[1] == "create":
            wanted = json.load(sys.stdin)
            prompts = [openrl.Prompt(**prompt) for prompt in wanted.pop("prompts")]
            reward = [openrl.Reward(**reward) for reward in wanted.pop("reward")]
            batch = client.rollouts.create(prompts, reward=reward, **wanted)
        else:
            batch = client.rollouts.attach(sys.argv[2])
        tell(batch=batch.id)
        for group in batch:
            tell(group=asdict(group))
        tell(state=asdict(batch.state()))


if __name__ == "__main__":
    main()
