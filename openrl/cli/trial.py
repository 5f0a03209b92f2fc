"""`openrl try`: one tiny step of reinforcement learning through a service, to see that all its parts work together.

Speaks HTTP with the package's own messages: a gateway's image has no SDK and no torch.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from openrl.cli.errors import NotReached, TrialFailed
from openrl.cli.reach import where
from openrl.client.errors import ClientError
from openrl.client.groups import Group, Rollout
from openrl.client.request import Reward
from openrl.client.rollouts import Rollouts
from openrl.client.transport import Transport
from openrl.config import Settings
from openrl.wire import tinker_pb2 as pb

PROMPT: Final = (1, 2, 3, 4)  #: tokens that every vocabulary has
ROLLOUTS: Final = 4
TOKENS: Final = 8  #: of each rollout, at most
REWARD: Final = Reward("length", params={"most": "4", "unit": "characters"})
POLL_SECONDS: Final = 20.0


def run(settings: Settings, url: str | None, base_model: str, seconds: float) -> None:
    """Create a run, sample and score rollouts of it, and train it with them, telling each step. Without an address,
    that of `openrl serve` on this machine is taken. Raises NotReached where the service does not answer or refuses,
    NotServing, TrialFailed where an operation fails or `seconds` are over."""
    try:
        transport = Transport(*where(settings, url), patience_seconds=seconds)
        try:
            Trial(transport, base_model, time.monotonic() + seconds).run()
        finally:
            transport.close()
    except ClientError as error:
        raise NotReached(str(error)) from error


class Trial:
    def __init__(self, transport: Transport, base_model: str, until: float) -> None:
        """`until`: a time of the monotonic clock."""
        self._transport, self._base_model, self._until = transport, base_model, until

    def run(self) -> None:
        """A session of a trial that fails is left to fall silent: the service then forgets it by itself."""
        session = self._post("create_session", {"sdk_version": "openrl"})["session_id"]
        with step(f"a run on {self._base_model}"):
            lora = {"rank": 4, "seed": 1}
            asked = {"session_id": session, "model_seq_id": 0, "base_model": self._base_model, "lora_config": lora}
            run = {"model_id": self._settled(self._post("create_model", asked))["model_id"]}
        with step("its policy"):
            saving = {**run, "seq_id": 1, "sampling_session_seq_id": 0}
            saved = self._settled(self._post("save_weights_for_sampler", saving))
            sampler = self._post("retrieve_future", {"request_id": saved["request_id"]})["sampling_session_id"]
        with step(f"{ROLLOUTS} rollouts, sampled and scored"):
            group = self._rolled_out(sampler)
        with step("a gradient and an optimizer step"):
            self._settled(self._forward_backward(run["model_id"], group))
            self._settled(self._post("optim_step", {**run, "seq_id": 3, "adam_params": {"learning_rate": 1e-4}}))
        self._post(f"sessions/{quote(session, safe='')}/finish", {"reason": {"type": "success"}})

    def _rolled_out(self, sampler: str) -> Group:
        sampling = {"max_tokens": TOKENS, "temperature": 1.0}
        batch = Rollouts(self._transport).create(
            [list(PROMPT)], sampler=sampler, group_size=ROLLOUTS, sampling=sampling, reward=REWARD, progress=False
        )
        (group,) = batch.results()
        if group.dropped:
            raise TrialFailed(f"{len(group.dropped)} of {ROLLOUTS} rollouts were lost: {group.dropped[0].reason}")
        return group

    def _forward_backward(self, run: str, group: Group) -> Any:
        request = pb.ForwardBackwardRequest(model_id=run, seq_id=2, loss_fn="importance_sampling", data=datums(group))
        return self._transport.send("POST", "/api/v1/forward_backward", content=request.SerializeToString())

    def _post(self, path: str, body: object) -> Any:
        return self._transport.send("POST", f"/api/v1/{path}", json=body)

    def _settled(self, asked: Any) -> Any:
        """What was asked, once it is done."""
        path = f"/openrl/v1/ops/{quote(asked['request_id'], safe='')}"
        while True:
            op = self._transport.send("GET", path, params={"wait_seconds": POLL_SECONDS, "life": True})
            if op["status"] == "done":
                return asked
            if op["status"] == "failed":
                raise TrialFailed(f"{op['kind']}: {op['error']['message']}")
            if time.monotonic() > self._until:
                raise TrialFailed(f"{op['kind']} is still {op['status']}; `openrl ops show {op['op_id']}` tells more")


@contextmanager
def step(what: str) -> Iterator[None]:
    """Tell what is done, and how long it took."""
    began = time.monotonic()
    print(f"{what} …", end=" ", flush=True)
    yield
    print(f"{time.monotonic() - began:.1f} s", flush=True)


def datums(group: Group) -> list[pb.Datum]:
    """For `importance_sampling`, with the rewards' distance from their mean as advantages."""
    mean = sum(group.rewards) / len(group.rewards)
    return [_datum(group.prompt_tokens, each, each.reward - mean) for each in group.rollouts]


def _datum(prompt: Sequence[int], rollout: Rollout, advantage: float) -> pb.Datum:
    tokens, given = [*prompt, *rollout.tokens], [0.0] * (len(prompt) - 1)
    text = pb.EncodedTextChunk(tokens=np.array(tokens[:-1], dtype="<i4").tobytes())
    numbers = {"logprobs": [*given, *rollout.logprobs], "advantages": [*given, *([advantage] * len(rollout.tokens))]}
    inputs = {name: _tensor(values, "<f4", pb.DTYPE_FLOAT32) for name, values in numbers.items()}
    inputs["target_tokens"] = _tensor(tokens[1:], "<i8", pb.DTYPE_INT64)
    return pb.Datum(model_input=[pb.Chunk(encoded_text=text)], loss_fn_inputs=inputs)


def _tensor(values: Sequence[float], as_sent: str, dtype: pb.DType) -> pb.Tensor:
    return pb.Tensor(dense=np.array(values, dtype=as_sent).tobytes(), dtype=dtype)
