"""What a judge is asked about the rollouts of each prompt.

Words of the request are put into the question here; only the completion's places are left open for the worker that has
it, so nothing that a model wrote is ever read as a template.
"""

from typing import Final

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import DepotKey, OpId
from openrl.domain.judge import AskJudge, Pieces, Said
from openrl.domain.model import ModelCard
from openrl.wire.judge import Judge, named, parts
from openrl.wire.rollouts import PromptChoice, RolloutRequest
from openrl.wire.sampling import MOST_SAMPLES, to_params

ASKED_CHARS: Final = 64_000_000  #: of all questions of a batch, without the completions


def to_questions(
    judge: Judge, request: RolloutRequest, card: ModelCard, policy: DepotKey | None, of: list[OpId]
) -> list[AskJudge]:
    """What is asked about the rollouts of each prompt; `of` are their ops. Raises FieldInvalid for what the question
    needs of a prompt and its context and is not there, and for more answers than one op may draw."""
    _check_answers(judge, request.group_size)
    with named(judge.where, "sampling_params", "sampling"):
        drawn = to_params(judge.params.sampling, 1, card)
    allowance, questions = _Allowance(judge), []
    for number, prompt in enumerate(request.prompts):
        text, messages = _asked(judge, _Words(prompt, f"prompts[{number}]", judge.where, allowance))
        questions.append(
            AskJudge(
                of=of[number],
                reward=judge.reward,
                base_model=card.name,
                policy=policy,
                answers=judge.params.answers,
                params=drawn,
                text=text,
                messages=messages,
            )
        )
    return questions


class _Allowance:
    """Characters that all questions of a batch may have."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._taken = judge, 0

    def take(self, words: str) -> str:
        """The words. Raises FieldInvalid once they are too many in all: before they are put together."""
        self._taken += len(words)
        if self._taken > ASKED_CHARS:
            field = "text" if self._judge.params.text is not None else "messages"
            problem = f"asks more than {ASKED_CHARS} characters in all; shorten it or send several batches"
            raise FieldInvalid(f"{self._judge.where}.{field}", problem)
        return words


class _Words:
    """What may stand in a question about one prompt's rollouts."""

    def __init__(self, prompt: PromptChoice, where: str, judge: str, allowance: _Allowance) -> None:
        self._prompt, self._where, self._judge, self._allowance = prompt, where, judge, allowance

    def filled(self, template: str, field: str) -> Pieces:
        pieces: list[list[str]] = [[]]
        for at, part in enumerate(parts(template)):
            name = part.strip()
            if at % 2 == 0:
                pieces[-1].append(self._allowance.take(part))
            elif name == "completion":
                pieces.append([])
            else:
                words = self._prompt_words(field) if name == "prompt" else self._context(name, field)
                pieces[-1].append(self._allowance.take(words))
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


def _asked(judge: Judge, words: _Words) -> tuple[Pieces, tuple[Said, ...]]:
    """The question as a text or as messages; the other is empty."""
    if judge.params.text is not None:
        return words.filled(judge.params.text, "text"), ()
    asked = judge.params.messages or ()
    return (), tuple(Said(role=each.role, pieces=words.filled(each.content, "messages")) for each in asked)


def _check_answers(judge: Judge, group_size: int) -> None:
    if group_size * judge.params.answers > MOST_SAMPLES:
        asked = f"{judge.params.answers} answers to each of {group_size} rollouts"
        raise FieldInvalid(f"{judge.where}.answers", f"{asked} are more than {MOST_SAMPLES} for one prompt; ask fewer")
