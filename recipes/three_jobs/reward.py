"""The task and its reward: a sentence of eight words.

What a reward waits for in earnest (a program's tests, a database, a person, a larger model) is not on the device that
trains. Here it is a sleep, in `run.py` or on the reward queue (`queued.py`), so that its length can be chosen.
"""

import random

WORDS = 8  #: that a reply should have
TOPICS = "birds bread bridges cats clouds coffee gardens letters maps music rain rivers ships snow tea trains"


def draw(rng: random.Random) -> str:
    """A prompt to go on with."""
    return f"A very short sentence about {rng.choice(TOPICS.split())}:"


def reward(text: str) -> float:
    """1 for a first line of eight words, an eighth less for each that is missing or too many, down to 0."""
    line = text.strip().partition("\n")[0]
    return max(0.0, 1.0 - abs(len(line.split()) - WORDS) / WORDS)
