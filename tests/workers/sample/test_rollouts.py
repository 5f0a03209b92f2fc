"""Rollouts as samples: prompts rendered, errors renamed, texts told."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openrl.domain.errors import Draining, FieldInvalid
from openrl.domain.ids import BatchId, DepotKey, OpId, SamplerId, TenantId
from openrl.domain.op import Sample, SampleOp
from openrl.domain.outcome import Result, Sampled
from openrl.domain.rollout import Message, RolledOut, RollOut
from openrl.domain.sampling import SampleResult, SamplingParams, Sequence, StopReason
from openrl.domain.tensor import DType, Tensor
from openrl.ledger.port import Held
from workers.model.arrays import from_domain, to_domain
from workers.sample.rollouts import Renderer, RollOuts

PARAMS = SamplingParams(max_tokens=4)


def ints(*values: int) -> Tensor:
    return to_domain(list(values), DType.INT32)


class Tokenizer:
    """A character is a token; 1 begins a text, 2 ends a turn."""

    chat_template: str | None = "a template"

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [1] * add_special_tokens + [ord(char) for char in text]

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        return "".join(chr(token) for token in tokens if token > 2 or not skip_special_tokens)

    def apply_chat_template(self, messages: list[dict[str, str]], add_generation_prompt: bool, tokenize: bool) -> str:
        assert add_generation_prompt and not tokenize
        if messages[0]["role"] == "nobody":
            raise ValueError("roles must alternate")
        return "\x01" + "".join(f"{said['role'][0]}:{said['content']}\n" for said in messages) + "a:"


class Inner:
    """A `Work` that samples, and remembers what it was asked for."""

    def __init__(self, answer: Callable[[], Result] | None = None) -> None:
        self.asked: list[Any] = []
        self.calls: list[str] = []
        self._answer = answer

    def __call__(self, held: Held) -> Result:
        self.asked.append(held.op.action)
        if self._answer is not None:
            return self._answer()
        tokens = ints(72, 105, 2)
        sequence = Sequence(
            tokens=tokens, logprobs=to_domain([0.0, 0.0, 0.0], DType.FLOAT32), stop_reason=StopReason.STOP
        )
        return Sampled(result=SampleResult(sequences=(sequence,)))

    def abort(self, op_id: OpId) -> None:
        self.calls.append(f"abort {op_id}")

    def drain(self) -> None:
        self.calls.append("drain")


def held(**prompt: Any) -> Held:
    action = RollOut(base_model="m", policy=DepotKey("policies/p"), number=3, num_samples=1, params=PARAMS, **prompt)
    op = SampleOp(
        id=OpId("o"), tenant=TenantId("t"), sampler=SamplerId("b"), number=3, action=action, batch=BatchId("b")
    )
    return Held(op=op, epoch=1, attempt=1, waited_seconds=2.5)


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ({"tokens": ints(5, 6)}, [5, 6]),
        ({"text": "Hi"}, [1, 72, 105]),
        ({"messages": (Message(role="user", content="Hi"),)}, [1, *map(ord, "u:Hi\na:")]),
    ],
)
def test_a_prompt_becomes_tokens_and_samples_become_texts(prompt: dict[str, Any], tokens: list[int]) -> None:
    inner = Inner()
    result = RollOuts(inner, Renderer(Tokenizer()))(held(**prompt))
    assert isinstance(result, RolledOut)
    (sample,) = inner.asked
    assert from_domain(sample.prompt).tolist() == tokens == from_domain(result.prompt).tolist()
    assert (sample.params, sample.policy, sample.num_samples) == (PARAMS, "policies/p", 1)
    assert result.texts == ("Hi",), "without what ends the turn"
    assert len(result.sequences) == 1 and result.queued_seconds == 2.5 and result.sampled_seconds >= 0


def test_messages_need_a_chat_template() -> None:
    tokenizer = Tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(FieldInvalid) as caught:
        RollOuts(Inner(), Renderer(tokenizer))(held(messages=(Message(role="user", content="Hi"),)))
    assert str(caught.value) == "prompts[3].messages: m has no chat template; send text or tokens"


def test_messages_that_the_template_refuses_are_named() -> None:
    with pytest.raises(FieldInvalid, match=r"prompts\[3\].messages: the chat template of m refuses them: roles must"):
        RollOuts(Inner(), Renderer(Tokenizer()))(held(messages=(Message(role="nobody", content="Hi"),)))


def test_a_text_without_tokens_is_refused() -> None:
    tokenizer = Tokenizer()
    tokenizer.encode = lambda text, add_special_tokens=True: []  # type: ignore[method-assign]
    with pytest.raises(FieldInvalid, match=r"prompts\[3\]: has no tokens"):
        RollOuts(Inner(), Renderer(tokenizer))(held(text="\u200b"))


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("prompt", "prompts[3]"),
        ("sampling_params.max_tokens", "sampling.max_tokens"),
        ("num_samples", "group_size"),
        ("prompt_logprobs", "prompt_logprobs"),
    ],
)
def test_what_the_engine_refuses_has_the_requests_names(field: str, named: str) -> None:
    def refuse() -> Result:
        raise FieldInvalid(field, "is bad")

    with pytest.raises(FieldInvalid) as caught:
        RollOuts(Inner(refuse), Renderer(Tokenizer()))(held(text="Hi"))
    assert (caught.value.field, caught.value.problem) == (named, "is bad")


def test_other_errors_and_other_ops_pass_as_they_are() -> None:
    def drain() -> Result:
        raise Draining

    with pytest.raises(Draining):
        RollOuts(Inner(drain), Renderer(Tokenizer()))(held(text="Hi"))
    inner = Inner()
    work = RollOuts(inner, Renderer(Tokenizer()))
    sample = Sample(base_model="m", policy=None, prompt=ints(1), num_samples=1, params=PARAMS)
    op = SampleOp(id=OpId("o"), tenant=TenantId("t"), sampler=SamplerId("s"), number=0, action=sample)
    assert isinstance(work(Held(op=op, epoch=1, attempt=1)), Sampled) and inner.asked == [sample]
    work.abort(OpId("o"))
    work.drain()
    assert inner.calls == ["abort o", "drain"]


def test_a_tenants_long_texts_let_another_ones_past() -> None:
    """The tokenizer is at a text of the first one's while two more come, and one of somebody else."""
    begun, hold, said = threading.Event(), threading.Event(), []

    class Slow(Tokenizer):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            said.append(text)
            begun.set()
            assert hold.wait(10)
            return super().encode(text, add_special_tokens)

    renderer = Renderer(Slow())
    work = RollOuts(Inner(), renderer)
    with ThreadPoolExecutor(4) as pool:
        pool.submit(work, held(text="a0"))
        assert begun.wait(10)
        for number, (tenant, text) in enumerate([("anna", "a1"), ("anna", "a2"), ("bert", "b0")], 1):
            one = held(text=text)
            pool.submit(work, replace(one, op=replace(one.op, tenant=TenantId(tenant))))
            wait_until(lambda number=number: sum(map(len, renderer._turns._waiting.values())) == number)
        hold.set()
    assert said.index("b0") < said.index("a2")


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_a_real_tokenizer_renders_alike_from_many_threads() -> None:
    from openrl.models.tiny import tokenizer

    renderer = Renderer(tokenizer())
    said = [held(messages=(Message(role="user", content=f"{number} é"),)).op.action for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        prompts = list(pool.map(renderer.tokens, said))
    for number, prompt in enumerate(prompts):
        assert renderer.text(prompt) == f"user\n{number} é\nassistant\n"
        assert np.frombuffer(prompt.data, "<i4").size > 10
