"""Where replies are scored: in this process, or by the service's reward workers. Both say the same."""

import asyncio
from typing import Protocol

from problems import Problem
from reward import Score, inside, score, similarity


class Scorer(Protocol):
    async def __call__(self, replies: list[str], problems: list[Problem]) -> list[Score]:
        """One score for each reply, each to the problem in its place."""


async def local(replies: list[str], problems: list[Problem]) -> list[Score]:
    """Queries run in this process: what a model makes up can read one small database for a second, and no more."""
    return await asyncio.to_thread(lambda: [score(*both) for both in zip(replies, problems, strict=True)])


class Queue:
    """Queries run in the sandbox of the service's reward workers, by its function `sql_execution`."""

    def __init__(self, base_url: str | None) -> None:
        import openrl

        self._client = openrl.Client(base_url)

    async def __call__(self, replies: list[str], problems: list[Problem]) -> list[Score]:
        contexts = [problem.context() for problem in problems]
        told = await asyncio.to_thread(self._client.score_in_parts, "sql_execution", replies, contexts)
        return [
            Score(one.value == 1.0, one.parts["parsed"] == 1.0, similarity(inside(reply), problem.gold))
            for one, reply, problem in zip(told, replies, problems, strict=True)
        ]


def scorer(where: str, base_url: str | None) -> Scorer:
    return Queue(base_url) if where == "queue" else local
