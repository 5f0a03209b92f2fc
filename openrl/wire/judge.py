"""The reward `judge`: its parameters, and what it asks about the rollouts of each prompt.

Words of the request are put into the question here; only the completion's places are left open for the worker that has
it, so nothing that a model wrote is ever read as a template.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import DepotKey, OpId
from openrl.domain.judge import AskJudge, Pieces, Said
from openrl.domain.model import ModelCard
from openrl.wire.base import INT32, Wire, read_json
from openrl.wire.rollouts import ChatMessage, PolicyChoice, PromptChoice, RolloutRequest
from openrl.wire.sampling import MOST_SAMPLES, SamplingOptions, to_params

NAME: Final = "judge"
MOST_ANSWERS: Final = 16
MOST_LABELS: Final = 100
PATTERN_CHARS: Final = 1000
ASKED_CHARS: Final = 64_000_000  #: of all questions of a batch, without the completions
#: Parameters that are texts as they stand; of the others the JSON is read.
_TEXTS: Final = ("text", "pattern")
#: Those that say how an answer is read; they go along with the answers.
_READING: Final = ("pattern", "labels", "range")
MOST_PLACES: Final = 16  #: of the completion in one question: a worker has a copy of it for each

Number = Annotated[float, Field(allow_inf_nan=False)]


class JudgeSampling(SamplingOptions):
    max_tokens: int = Field(ge=1, le=INT32)
    temperature: float = Field(0.0, ge=0, allow_inf_nan=False)


class JudgeParams(Wire):
    policy: PolicyChoice
    text: Annotated[str, Field(min_length=1)] | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=64)] | None = None
    sampling: JudgeSampling
    answers: int = Field(1, ge=1, le=MOST_ANSWERS)
    pattern: Annotated[str, Field(min_length=1, max_length=PATTERN_CHARS)] | None = None
    labels: Annotated[dict[str, Number], Field(min_length=1, max_length=MOST_LABELS)] | None = None
    range: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = None


@dataclass(frozen=True, slots=True)
class Judge:
    """A judge that a request for rollouts asks for, its parameters checked as far as they stand alone."""

    reward: int  #: its place among the request's rewards
    params: JudgeParams
    reading: dict[str, str]  #: the parameters that the reader of its answers needs, as they were given

    @property
    def where(self) -> str:
        return f"rewards[{self.reward}].params"


def judge_of(request: RolloutRequest) -> Judge | None:
    """Raises FieldInvalid for parameters that are wrong whoever judges."""
    for number, reward in enumerate(request.rewards):
        if reward.name == NAME:
            with named(f"rewards[{number}].params"):
                params = read_json(JudgeParams, json.dumps(_read(reward.params)).encode())
                _check(params)
            return Judge(number, params, {name: text for name, text in reward.params.items() if name in _READING})
    return None


def to_questions(
    judge: Judge, request: RolloutRequest, card: ModelCard, policy: DepotKey | None, of: list[OpId]
) -> list[AskJudge]:
    """What is asked about the rollouts of each prompt; `of` are their ops. Raises FieldInvalid for what the question
    needs of a prompt and its context and is not there, and for more answers than one op may draw."""
    params = judge.params
    if request.group_size * params.answers > MOST_SAMPLES:
        asked = f"{params.answers} answers to each of {request.group_size} rollouts"
        raise FieldInvalid(f"{judge.where}.answers", f"{asked} are more than {MOST_SAMPLES} for one prompt; ask fewer")
    with named(judge.where, "sampling_params", "sampling"):
        drawn = to_params(params.sampling, 1, card)
    room, questions = _Room(judge), []
    for number, prompt in enumerate(request.prompts):
        words = _Words(prompt, f"prompts[{number}]", judge.where, room)
        questions.append(
            AskJudge(
                of=of[number],
                reward=judge.reward,
                base_model=card.name,
                policy=policy,
                answers=params.answers,
                params=drawn,
                text=() if params.text is None else words.filled(params.text, "text"),
                messages=tuple(
                    Said(role=each.role, pieces=words.filled(each.content, "messages"))
                    for each in params.messages or ()
                ),
            )
        )
    return questions


@contextmanager
def named(where: str, old: str = "", new: str = "") -> Iterator[None]:
    """Errors of what lies there, by their whole path; `old` is what the field is called elsewhere."""
    try:
        yield
    except FieldInvalid as error:
        raise FieldInvalid(f"{where}.{error.field.replace(old, new, 1)}", error.problem) from None


class _Room:
    """Of all questions of a batch, without the completions."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._asked = judge, 0

    def take(self, words: str) -> str:
        """The words. Raises FieldInvalid once they are too many in all: before they are put together."""
        self._asked += len(words)
        if self._asked > ASKED_CHARS:
            field = "text" if self._judge.params.text is not None else "messages"
            problem = f"asks more than {ASKED_CHARS} characters in all; shorten it or send several batches"
            raise FieldInvalid(f"{self._judge.where}.{field}", problem)
        return words


class _Words:
    """What may stand in a question about one prompt's rollouts."""

    def __init__(self, prompt: PromptChoice, where: str, judge: str, room: _Room) -> None:
        self._prompt, self._where, self._judge, self._room = prompt, where, judge, room

    def filled(self, template: str, field: str) -> Pieces:
        pieces: list[list[str]] = [[]]
        for at, part in enumerate(_parts(template)):
            name = part.strip()
            if at % 2 == 0:
                pieces[-1].append(self._room.take(part))
            elif name == "completion":
                pieces.append([])
            else:
                words = self._prompt_words(field) if name == "prompt" else self._context(name, field)
                pieces[-1].append(self._room.take(words))
        return tuple(map("".join, pieces))

    def _context(self, name: str, field: str) -> str:
        key = name.removeprefix("context.")
        if key not in self._prompt.context:
            raise FieldInvalid(f"{self._where}.context", f"has no {key!r}, which {self._judge}.{field} asks for")
        return self._prompt.context[key]

    def _prompt_words(self, field: str) -> str:
        """A lone message as it stands, several each behind its role."""
        if self._prompt.text is not None:
            return self._prompt.text
        messages = self._prompt.messages or []
        if not messages:
            problem = f"tokens cannot fill {{{{prompt}}}} of {self._judge}.{field}; send text or messages"
            raise FieldInvalid(f"{self._where}.tokens", problem)
        if len(messages) == 1:
            return messages[0].content
        return "\n".join(f"{message.role}: {message.content}" for message in messages)


def _read(params: Mapping[str, str]) -> dict[str, object]:
    """Parameters travel as texts (`as_text`); what is no JSON stays one, for the field's own check to refuse."""

    def read(name: str, text: str) -> object:
        try:
            return text if name in _TEXTS else json.loads(text)
        except (ValueError, RecursionError):
            return text

    return {name: read(name, text) for name, text in params.items()}


def _check(params: JudgeParams) -> None:
    if (params.text is None) == (params.messages is None):
        raise FieldInvalid("text", "must be there, or else messages; exactly one of the two")
    templates = [("text", params.text)] if params.text is not None else []
    templates += [(f"messages[{at}].content", each.content) for at, each in enumerate(params.messages or ())]
    asked = [name for field, template in templates for name in _names(field, template)]
    if "completion" not in asked:
        raise FieldInvalid(templates[0][0].split("[")[0], "has no {{completion}}, so there is nothing to judge")
    if asked.count("completion") > MOST_PLACES:
        problem = f"has {asked.count('completion')} places for the completion; at most {MOST_PLACES} are filled"
        raise FieldInvalid(templates[0][0].split("[")[0], problem)
    if params.answers > 1 and params.sampling.temperature == 0:
        problem = f"is {params.answers}, but at temperature 0 all answers are the same; set sampling.temperature"
        raise FieldInvalid("answers", problem)
    _check_pattern(params.pattern)
    _check_scale(params)


def _names(field: str, template: str) -> list[str]:
    names = [name.strip() for name in _parts(template)[1::2]]
    for name in names:
        if name not in ("prompt", "completion") and not (name.startswith("context.") and len(name) > len("context.")):
            problem = f"has {{{{{name[:100]}}}}}; there are {{{{prompt}}}}, {{{{completion}}}} and {{{{context.NAME}}}}"
            raise FieldInvalid(field, problem)
    return names


def _parts(template: str) -> list[str]:
    """What stands around the places and the names in them, in turn. Each character is looked at once: what opens many
    places and closes none is no work."""
    parts, end = [], 0
    while (start := template.find("{{", end)) >= 0 and (close := template.find("}}", start + 2)) >= 0:
        parts += [template[end:start], template[start + 2 : close]]
        end = close + 2
    return [*parts, template[end:]]


def _check_pattern(pattern: str | None) -> None:
    if pattern is None:
        return
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise FieldInvalid("pattern", f"{pattern[:200]!r} is not a regular expression: {error}") from None
    if groups != 1:
        raise FieldInvalid("pattern", f"has {groups} groups; it must have one, around the label or number")


def _check_scale(params: JudgeParams) -> None:
    if params.labels is not None and params.range is not None:
        raise FieldInvalid("range", "is of numbers, and labels are asked for; give one of the two")
    if params.labels is not None and len({label.strip().casefold() for label in params.labels}) < len(params.labels):
        raise FieldInvalid("labels", "has two that are the same but for case or spaces")
    if params.labels is not None and not all(label.strip() for label in params.labels):
        raise FieldInvalid("labels", "has one without a character that can be seen")
    if params.range is not None and params.range[0] >= params.range[1]:
        raise FieldInvalid("range", f"is {params.range}; the first must be less than the second")
