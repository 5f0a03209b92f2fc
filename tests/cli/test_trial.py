from collections.abc import Iterator
from pathlib import Path

import pytest

from openrl.cli import trial
from openrl.cli.errors import NotReached, TrialFailed
from openrl.client.groups import Group, Rollout, Timings
from openrl.config import Settings
from openrl.domain.model import ModelCard
from openrl.gateway.doubles import ToyGateway, toy_gateway
from openrl.wire import tinker_pb2 as pb
from openrl.wire.batch import to_forward_backward


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyGateway]:
    with toy_gateway(tmp_path_factory.mktemp("gateway")) as up:
        yield up


@pytest.fixture(autouse=True)
def key(gateway: ToyGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRL_API_KEY", gateway.key)


def rollout(sample: int, tokens: tuple[int, ...], reward: float) -> Rollout:
    return Rollout(
        sample=sample,
        tokens=tokens,
        logprobs=tuple(-0.5 for _ in tokens),
        text="",
        stop_reason="stop",
        reward=reward,
        parts={},
        info={},
    )


GROUP = Group(
    index=0,
    id="",
    prompt_tokens=(1, 2),
    rollouts=(rollout(0, (7, 8, 9), 1.0), rollout(1, (5,), 0.0)),
    dropped=(),
    policy="",
    timings=Timings(queued_seconds=0, sampled_seconds=0, scored_seconds=0),
)


def test_a_service_that_works_is_told_step_by_step(gateway: ToyGateway, capsys: pytest.CaptureFixture[str]) -> None:
    trial.run(Settings(), gateway.url, "toy", 30)
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(" …")[0] for line in told] == [
        "a run on toy",
        "its policy",
        "4 rollouts, sampled and scored",
        "a gradient and an optimizer step",
    ]


def test_what_is_trained_on_passes_the_checks_of_the_gateway() -> None:
    card = ModelCard(name="m", aliases=(), tokenizer_id="m", architecture="", vocab_size=10, context_length=16)
    request = pb.ForwardBackwardRequest(loss_fn="importance_sampling", data=trial.datums(GROUP))
    first, second = to_forward_backward(request, card, dense_bytes=0).data
    assert (first.tokens.shape, second.tokens.shape) == ((4,), (2,))
    advantages = pb.Tensor.FromString(request.data[0].loss_fn_inputs["advantages"].SerializeToString())
    assert advantages.dense == b"\0\0\0\0" + 3 * b"\0\0\0?", "0 where a prompt token is predicted, then 0.5"


def test_an_unknown_model_is_told(gateway: ToyGateway) -> None:
    with pytest.raises(NotReached, match="nonesuch"):
        trial.run(Settings(), gateway.url, "nonesuch", 5)


def test_a_refused_request_fails_the_trial(monkeypatch: pytest.MonkeyPatch, gateway: ToyGateway) -> None:
    broken = [pb.Datum(model_input=[pb.Chunk(encoded_text=pb.EncodedTextChunk(tokens=b"\1\0\0\0"))])]
    monkeypatch.setattr(trial, "datums", lambda group: broken)
    with pytest.raises(NotReached, match="data"):
        trial.run(Settings(), gateway.url, "toy", 10)


class Answering:
    """A transport that answers the same to everything."""

    def __init__(self, **op: object) -> None:
        self.op = {"op_id": "7", "kind": "optim_step", **op}

    def send(self, *_: object, **__: object) -> dict[str, object]:
        return self.op


@pytest.mark.parametrize(
    ("op", "told"),
    [
        ({"status": "failed", "error": {"message": "no room"}}, "optim_step: no room"),
        ({"status": "waiting"}, "optim_step is still waiting; `openrl ops show 7` tells more"),
    ],
)
def test_an_operation_that_fails_or_takes_too_long_fails_the_trial(op: dict[str, object], told: str) -> None:
    with pytest.raises(TrialFailed, match=told):
        trial.Trial(Answering(**op), "m", until=0.0)._settled({"request_id": "7"})  # type: ignore[arg-type]


def test_a_service_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotReached, match="did not answer"):
        trial.run(Settings(), "http://127.0.0.1:1", "toy", 0.05)
