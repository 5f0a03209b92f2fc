import httpx
import pytest
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto

from openrl.config import Gateway
from openrl.gateway.doubles import ToyGateway, toy_gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """One for a whole module: tests make sessions of their own."""
    with toy_gateway(tmp_path_factory.mktemp("gateway"), gateway=Gateway(poll_seconds=0.3, max_body_mb=2)) as up:
        yield up


@pytest.fixture
def http(gateway):
    with Caller(gateway, gateway.key) as caller:
        yield caller


@pytest.fixture
def stranger(gateway):
    """Another tenant."""
    with Caller(gateway, gateway.other_key) as caller:
        yield caller


class Caller(httpx.Client):
    """Plain HTTP with a key, and the few requests that most tests begin with."""

    def __init__(self, gateway: ToyGateway, key: str) -> None:
        super().__init__(base_url=f"{gateway.url}/api/v1", headers={"x-api-key": key})

    def session(self) -> str:
        return self.done("create_session", tags=[], user_metadata={}, sdk_version="0")["session_id"]

    def run(self, session: str | None = None, number: int = 0) -> str:
        answer = self.done(
            "create_model",
            session_id=session or self.session(),
            model_seq_id=number,
            base_model="toy",
            lora_config={"rank": 8},
        )
        self.result(answer["request_id"])
        return answer["model_id"]

    def sampler(self, session: str | None = None, number: int = 0, **what: str) -> str:
        what = what or {"base_model": "toy"}
        request = {"session_id": session or self.session(), "sampling_session_seq_id": number, **what}
        return self.done("create_sampling_session", **request)["sampling_session_id"]

    def call(self, path: str, /, **fields: object) -> httpx.Response:
        return self.post(path, json=fields)

    def done(self, path: str, /, **fields: object) -> dict:
        response = self.call(path, **fields)
        assert response.status_code == 200, response.text
        return response.json()

    def result(self, request_id: str) -> dict:
        while (response := self.call("retrieve_future", request_id=request_id)).status_code == 408:
            pass
        assert response.status_code == 200, response.text
        return response.json()

    def step(self, run: str, turn: int, **params: float) -> httpx.Response:
        return self.call("optim_step", model_id=run, seq_id=turn, adam_params=params)

    def sample(self, sampler: str, number: int = 0, tokens=(1, 2), **params: object) -> httpx.Response:
        return self.call(
            "asample",
            sampling_session_id=sampler,
            seq_id=number,
            prompt={"chunks": [{"type": "encoded_text", "tokens": list(tokens)}]},
            sampling_params={"max_tokens": 2} | params,
        )

    def forward_backward(self, body: bytes, **headers: str) -> httpx.Response:
        return self.post("forward_backward", content=body, headers={"content-type": "application/x-protobuf"} | headers)

    @staticmethod
    def batch(run: str, turn: int, loss: str = "cross_entropy", count: int = 1, **inputs: list) -> bytes:
        """A forward_backward body as the SDK writes it."""
        inputs = inputs or {"target_tokens": [2, 3], "weights": [1.0, 1.0]}
        data = [types.Datum(model_input=types.ModelInput.from_ints([1, 2]), loss_fn_inputs=inputs)] * count
        body = types.ForwardBackwardInput(data=data, loss_fn="cross_entropy")
        request = types.ForwardBackwardRequest(forward_backward_input=body, model_id=run, seq_id=turn)
        message = forward_backward_request_to_proto(request)
        message.loss_fn = loss
        return message.SerializeToString()
