"""The reward as the service's reward workers call it, by the name slow_brevity."""

import time

from slow_brevity import reward as task

from openrl.rewards import Words, reward


@reward(version="1", seconds=600.0)
def score(text: str, _: Words, params: Words) -> float:
    """It takes `params.seconds`, in which it waits as if somebody else had to read the text."""
    time.sleep(float(params["seconds"]))
    return task.reward(text)
