"""The task: answer a request with one JSON function call. Drawing requests, and scoring replies.

Everything here is plain Python over strings. It knows no model, no tokens and no service. A new task needs a `draw`
that makes examples to learn from, a `held_out` that makes those to be tested with, and a score.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools import SMALL_TALK, TOOLS, Parameter, Tool
from unseen_tools import UNSEEN_SMALL_TALK, UNSEEN_TOOLS

NO_CALL = "No function fits."
SYSTEM = (
    'Answer with a call of one of these functions, as JSON: {"name": ..., "arguments": {...}}. '
    f"If none of them fits the request, answer: {NO_CALL}"
)
OPENERS = ("", "", "", "Hello! ", "One more thing. ")
UNSEEN_OPENERS = ("", "", "", "I could use some help. ")
NO_TOOL = 0.2  #: share of examples in which nothing fits
FUNCTIONS = (2, 3)  #: fewest and most that a request comes with
SLOT = re.compile(r"\{(\w+)(?:=([^|}]*)\|([^}]*))?\}")

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Example:
    """A request, the definitions that come with it, and the call that answers it; None where no function fits."""

    kind: str
    definitions: tuple[str, ...]
    request: str
    call: dict[str, Any] | None

    @property
    def reply(self) -> str:
        return NO_CALL if self.call is None else json.dumps(self.call)

    def messages(self) -> list[dict[str, str]]:
        """The chat to put before the model."""
        system = "\n".join([SYSTEM, *self.definitions])
        return [{"role": "system", "content": system}, {"role": "user", "content": self.request}]


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool under one of its names, as it is offered with a request; `names` has that of each parameter."""

    tool: Tool
    name: str
    names: dict[str, str]

    def definition(self) -> str:
        parameters = {self.names[key]: parameter.type for key, parameter in self.tool.parameters.items()}
        return json.dumps({"name": self.name, "description": self.tool.about, "parameters": parameters})

    def call(self, arguments: dict[str, Value]) -> dict[str, Any]:
        named = {self.names[key]: arguments[key] for key in self.names if key in arguments}
        return {"name": self.name, "arguments": named}


# --- draw -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """What examples of one sort are drawn from; `unseen` says which of the strings."""

    tools: Sequence[Tool]
    small_talk: Sequence[str]
    openers: Sequence[str]
    unseen: bool


TRAINING = Source(TOOLS, SMALL_TALK, OPENERS, False)
REWORDED = [replace(tool, wordings=tool.unseen_wordings) for tool in TOOLS]
TESTS = {
    "unseen_wording": Source(REWORDED, UNSEEN_SMALL_TALK, UNSEEN_OPENERS, True),
    "unseen_tool": Source(UNSEEN_TOOLS, UNSEEN_SMALL_TALK, UNSEEN_OPENERS, True),
    "no_tool": Source(UNSEEN_TOOLS, UNSEEN_SMALL_TALK, UNSEEN_OPENERS, True),
}
KINDS = tuple(TESTS)
#: What is told of each kind: the fields of its scores that say something of it.
MEASURES = {
    kind: ("valid", "exact") if kind == "no_tool" else ("valid", "name", "arguments", "exact") for kind in KINDS
}


def draw(rng: random.Random) -> Example:
    """An example to learn from: tools, wordings and strings of training alone."""
    return _without_call(rng, TRAINING) if rng.random() < NO_TOOL else _with_call(rng, "seen", TRAINING)


def held_out(count: int) -> list[Example]:
    """Always the same `count` examples, of the three kinds in turn. Strings are unseen ones in all of them:

    tools of training in unseen wordings, unseen tools among each other, and unseen tools of which none fits.
    """
    rng = random.Random(0)
    kinds = [KINDS[index % len(KINDS)] for index in range(count)]
    return [
        _without_call(rng, TESTS[kind]) if kind == "no_tool" else _with_call(rng, kind, TESTS[kind]) for kind in kinds
    ]


def _with_call(rng: random.Random, kind: str, source: Source) -> Example:
    tool = rng.choice(source.tools)
    wording = rng.choice(tool.wordings)
    offer = _offer(rng, tool)
    offers = [offer, *_others(rng, tool, source, rng.randint(*FUNCTIONS) - 1)]
    rng.shuffle(offers)
    request, arguments = _request(rng, tool, wording, unseen=source.unseen)
    definitions = tuple(one.definition() for one in offers)
    return Example(kind, definitions, rng.choice(source.openers) + request, offer.call(arguments))


def _without_call(rng: random.Random, source: Source) -> Example:
    """A third of the requests are small talk; the others are for a tool that is not among those offered."""
    tool = rng.choice(source.tools)
    request, _ = _request(rng, tool, rng.choice(tool.wordings), unseen=source.unseen)
    if rng.random() < 1 / 3:
        request = rng.choice(source.small_talk)
    offers = _others(rng, tool, source, rng.randint(*FUNCTIONS))
    definitions = tuple(offer.definition() for offer in offers)
    return Example("no_tool", definitions, rng.choice(source.openers) + request, None)


def _others(rng: random.Random, tool: Tool, source: Source, count: int) -> list[Offer]:
    others = rng.sample([other for other in source.tools if other is not tool], count)
    return [_offer(rng, other) for other in others]


def _offer(rng: random.Random, tool: Tool) -> Offer:
    """The tool under one of its names, half the time in camel case; parameters in any order, with distinct names."""
    style = _camel if rng.random() < 0.5 else str
    keys = list(tool.parameters)
    rng.shuffle(keys)
    names: dict[str, str] = {}
    for key in keys:
        free = [name for name in tool.parameters[key].names.split() if style(name) not in names.values()]
        names[key] = style(rng.choice(free))
    return Offer(tool, style(rng.choice(tool.names.split())), names)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _request(rng: random.Random, tool: Tool, wording: str, *, unseen: bool) -> tuple[str, dict[str, Value]]:
    """The wording with values put in, and the arguments that it states. No two of its strings are the same."""
    arguments: dict[str, Value] = {}

    def fill(slot: re.Match[str]) -> str:
        key, when_true, when_false = slot.groups()
        values = _values(tool.parameters[key], unseen=unseen)
        value = arguments[key] = rng.choice([value for value in values if value not in arguments.values()] or values)
        return str(value) if when_true is None else when_true if value else when_false

    request = SLOT.sub(fill, wording)
    return request[0].upper() + request[1:], arguments


def _values(parameter: Parameter, *, unseen: bool) -> tuple[Value, ...]:
    """What training draws from, or tests do: the last third of strings is for tests."""
    if parameter.type != "string":
        return parameter.values
    cut = len(parameter.values) * 2 // 3
    return parameter.values[cut:] if unseen else parameter.values[:cut]


# --- score ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """What is right about a reply. A name or arguments are right only in a reply that is a call and was to be one."""

    valid: bool  #: a call as JSON, or the fixed sentence, and nothing beside it
    name: bool
    arguments: bool
    exact: bool


def score(reply: str, example: Example) -> Score:
    """Values count as right where they are equal and of one type: 3 is not "3", nor 3.0, nor is 1 true."""
    said = reply.strip()
    if said == NO_CALL:
        return Score(True, False, False, example.call is None)
    call = _call(said)
    if call is None or example.call is None:
        return Score(call is not None, False, False, False)
    name = call["name"] == example.call["name"]
    arguments = json.dumps(call["arguments"], sort_keys=True) == json.dumps(example.call["arguments"], sort_keys=True)
    return Score(True, name, arguments, name and arguments)


def _call(said: str) -> dict[str, Any] | None:
    """The text as a call, or None where it is none."""
    try:
        call = json.loads(said)
    except (ValueError, RecursionError):
        return None
    if isinstance(call, dict) and call.keys() == {"name", "arguments"} and isinstance(call["arguments"], dict):
        return call
    return None
