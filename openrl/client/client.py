"""The client: rollouts, and reward functions that run where the service keeps its workers, called like local ones."""

import json
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import httpx

from openrl.client.errors import KeyMissing, WorkFailed
from openrl.client.rollouts import Rollouts
from openrl.client.scores import Score, scores_of
from openrl.client.transport import Transport

DEFAULT_URL: Final = "http://127.0.0.1:8000"
#: How long one poll is held open by the server.
POLL_SECONDS: Final = 25.0


class Client:
    """`base_url` and `api_key` default to OPENRL_BASE_URL and OPENRL_API_KEY, else to the Tinker variables of the same
    names. `patience_seconds` is how long a server that does not answer is tried again. Thread-safe.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        patience_seconds: float = 300.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        url, key = address(base_url, api_key)
        self._transport = Transport(url, key, patience_seconds=patience_seconds, transport=transport)
        self.rollouts = Rollouts(self._transport)

    def score(
        self,
        reward: str,
        texts: Sequence[str],
        contexts: Sequence[Mapping[str, object]] | None = None,
        params: Mapping[str, object] | None = None,
    ) -> list[float]:
        """One score per text, by the reward function of that name. `contexts` (one per text) and `params` (for all) are
        what the function looks at besides; values that are no strings travel as JSON text. Raises RequestRefused,
        WorkFailed, ServiceUnreachable."""
        return [score.value for score in self.score_in_parts(reward, texts, contexts, params)]

    def score_in_parts(
        self,
        reward: str,
        texts: Sequence[str],
        contexts: Sequence[Mapping[str, object]] | None = None,
        params: Mapping[str, object] | None = None,
    ) -> list[Score]:
        """The same, with what the function measured on the way and what it says to people."""
        if not texts:
            return []
        request = {
            "key": uuid4().hex,
            "reward": reward,
            "texts": list(texts),
            "contexts": None if contexts is None else [_as_text(context) for context in contexts],
            "params": _as_text(params or {}),
        }
        op_id = self._transport.send("POST", "/openrl/v1/score", json=request)["op_id"]
        return scores_of(self._result(op_id))

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _result(self, op_id: str) -> Any:
        """Waits for as long as it takes: the server keeps the op through its own restarts."""
        while True:
            op = self._transport.send("GET", f"/openrl/v1/ops/{op_id}", params={"wait_seconds": POLL_SECONDS})
            if op["status"] == "failed":
                raise WorkFailed(**op["error"])
            if op["status"] == "done":
                return op["result"]


def address(base_url: str | None, api_key: str | None) -> tuple[str, str]:
    """URL and key, of the environment where they are not given. Raises KeyMissing."""
    key = api_key or os.environ.get("OPENRL_API_KEY") or os.environ.get("TINKER_API_KEY")
    if not key:
        raise KeyMissing
    return base_url or os.environ.get("OPENRL_BASE_URL") or os.environ.get("TINKER_BASE_URL") or DEFAULT_URL, key


def _as_text(values: Mapping[str, object]) -> dict[str, str]:
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
