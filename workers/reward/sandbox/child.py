"""What a child does behind its walls: score texts, or run the model's code."""

import socket
from collections.abc import Callable
from typing import Any, Final

from openrl.domain.errors import AnswerUnreadable, FieldInvalid
from openrl.rewards import RewardFunction, RewardResult
from workers.reward import execution
from workers.reward.catalogue import Catalogue
from workers.reward.plain import WORDS, plain
from workers.reward.sandbox import frames, running

MOST_BYTES: Final = 1 << 28  #: of a text with its context


def scoring(pipe: socket.socket, catalogue: Catalogue) -> None:
    """One text after the other, until there are none to come. Only functions see what is scored; model output is data
    here. What is asked without a context has that of the text before."""
    execution.connect(pipe)
    context: dict[str, str] = {}
    while True:
        try:
            asked = frames.receive(pipe, MOST_BYTES)
        except frames.Ended:
            return
        context = asked.get("context", context)
        frames.send(pipe, _scored(catalogue.functions[asked["reward"]], asked | {"context": dict(context)}))


def _scored(function: RewardFunction, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        result = function(asked["text"], asked["context"], asked["params"])
        return plain(result if isinstance(result, RewardResult) else RewardResult(float(result)))
    except FieldInvalid as error:
        return {"invalid": [error.field, error.problem]}
    except AnswerUnreadable as error:
        return {"unreadable": error.args[0]}
    except MemoryError:
        return {"exhausted": True}
    except Exception as error:  # a reward function's bug is an answer too
        return {"bug": f"{type(error).__name__}: {error}"[:WORDS]}


def executing(pipe: socket.socket, _catalogue: Catalogue) -> None:
    """Run the model's code once. Whatever that does to this process, it can only answer for its own values."""
    asked = frames.receive(pipe, MOST_BYTES)
    frames.send(pipe, running.run(asked))


TASKS: Final[dict[str, Callable[[socket.socket, Catalogue], None]]] = {"score": scoring, "execute": executing}
