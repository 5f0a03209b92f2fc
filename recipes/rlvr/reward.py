"""The task and its reward: read a sentence about a person, answer with one JSON object.

Everything here is plain Python over strings. It knows no model, no tokens and no service, so it can be read, tested and
replaced alone: a new task needs a `draw` that makes problems and a `reward` that checks a reply.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass

SYSTEM = "You write JSON."
ASK = 'Write it as JSON: {"name": "...", "age": ..., "city": "..."}'


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = words(
    "Adam Alice Amy Ana Anna Ben Carl Clara Dan David Emma Eva Henry Hugo Ivy James Jane Jon Julia Kim Laura Lea Leo "
    "Lucy Luis Maria Mark Max Mia Nina Noah Omar Paul Peter Rosa Roy Sam Sara Tom Zoe"
)
CITIES = words(
    "Athens Berlin Boston Cairo Chicago Delhi Dublin Havana Lima Lisbon London Madrid Milan Moscow Nairobi Oslo Paris "
    "Prague Rome Seoul Sydney Tokyo Vienna Zurich"
)
#: People and places that training never shows.
UNSEEN_NAMES = words("Alan Diana Edgar Fiona Felix Grace Ian Marta Oscar Ruth Simon Vera")
UNSEEN_CITIES = words("Bogota Brussels Denver Geneva Hanoi Helsinki Kyoto Munich Naples Toronto Venice Warsaw")
JOBS = words("baker chef dentist doctor driver farmer judge lawyer nurse painter pilot singer teacher writer")

#: {city} is where the person lives now; {past} and {years} are there to mislead.
SENTENCES = (
    "{name} is {age} years old and lives in {city}.",
    "{name}, {age}, is a {job} from {city}.",
    "At {age}, {name} works as a {job} in {city}.",
    "In {city} I met {name}, a {job} who just turned {age}.",
    "Our {job} in {city} is called {name} and is {age} years old.",
    "{name} left {past} and now lives in {city}, aged {age}.",
    "{name} has been a {job} in {city} for {years} years and is {age} now.",
    "After {years} years in {past}, {name} moved to {city} at the age of {age}.",
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence and the facts that a reply must state."""

    sentence: str
    facts: dict[str, str | int]

    def messages(self) -> list[dict[str, str]]:
        """The chat to put before the model."""
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{self.sentence} {ASK}"}]


def draw(rng: random.Random, *, unseen: bool = False) -> Problem:
    """A fresh problem; `unseen` takes the person and the city from the lists held out of training."""
    names, cities = (UNSEEN_NAMES, UNSEEN_CITIES) if unseen else (NAMES, CITIES)
    city, past = rng.sample(cities, 2)
    facts: dict[str, str | int] = {"name": rng.choice(names), "age": rng.randint(18, 90), "city": city}
    sentence = rng.choice(SENTENCES).format(job=rng.choice(JOBS), past=past, years=rng.randint(2, 17), **facts)
    return Problem(sentence, facts)


def reward(reply: str, facts: dict[str, str | int]) -> float:
    """The share of five checks that `reply` passes, from 0.0 to 1.0.

    One for each right value (of the right type), one for having exactly the keys asked for, one for saying nothing
    beside the object. A reply whose first brace does not open a valid JSON object passes none.
    """
    before, _, _ = reply.partition("{")
    found: dict[str, object]
    try:
        found, end = json.JSONDecoder().raw_decode(reply, len(before))
    except (ValueError, RecursionError):
        return 0.0
    right = sum(type(found.get(key)) is type(fact) and found[key] == fact for key, fact in facts.items())
    only_the_keys = set(found) == set(facts)
    only_the_object = not (before + reply[end:]).strip()
    return (right + only_the_keys + only_the_object) / (len(facts) + 2)


def score(text: str, context: Mapping[str, str], _: Mapping[str, str]) -> float:
    """`reward` as the service's reward workers call it: the facts come as JSON, in the prompt's context."""
    return reward(text, json.loads(context["facts"]))
