"""Judges as samples: questions rendered around what they ask about, answers told, one text's failure its own."""

from concurrent.futures import Future
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from openrl.domain.errors import ClaimLost, Draining, EngineBusy, FieldInvalid, OpNotFound
from openrl.domain.ids import BatchId, DepotKey, OpId, SamplerId, TenantId
from openrl.domain.judge import AskJudge, Judged, Said
from openrl.domain.op import SampleOp, Status
from openrl.domain.outcome import Record, Result
from openrl.domain.rollout import RolledOut
from openrl.domain.sampling import SampleResult, SamplingParams, Sequence, StopReason
from openrl.domain.tensor import DType, Tensor
from openrl.ledger.port import Held
from openrl.models.tiny import tokenizer
from workers.model.arrays import to_domain
from workers.sample.judging import Judging
from workers.sample.request import SampleRequest
from workers.sample.rollouts import Renderer
from workers.sample.work import SampleWork

NOTHING = Tensor(dtype=DType.INT32, shape=(0,), data=b"")
PARAMS = SamplingParams(max_tokens=4, temperature=0.0)
RENDERER = Renderer(tokenizer())


class Engine:
    """Answers at once: each prompt with `Hi`, or as it is scripted."""

    def __init__(self, **scripted: Exception | None) -> None:
        self.scripted, self.cancelled = scripted, 0
        self.asked: list[SampleRequest] = []

    def submit(self, request: SampleRequest) -> Future[SampleResult]:
        self.asked.append(request)
        future: Future[SampleResult] = Future()
        outcome = self.scripted.get(f"at_{len(self.asked) - 1}", False)
        if outcome:
            future.set_exception(outcome)
        elif outcome is False:
            future.set_result(SampleResult(sequences=(_sequence(),) * request.num_samples))
        return future

    def cancel(self, future: Future[SampleResult]) -> None:
        self.cancelled += future.cancel()

    def close(self) -> None: ...


def _sequence() -> Sequence:
    tokens = to_domain(RENDERER.ids("Hi", begins=False), DType.INT32)
    logprobs = to_domain([0.0] * tokens.elements, DType.FLOAT32)
    return Sequence(tokens=tokens, logprobs=logprobs, stop_reason=StopReason.STOP)


def held(**question: Any) -> Held:
    ask = AskJudge(of=OpId("r"), reward=1, base_model="m", policy=DepotKey("p"), answers=2, params=PARAMS, **question)
    op = SampleOp(
        id=OpId("j"), tenant=TenantId("t"), sampler=SamplerId("b.judge"), number=3, action=ask, batch=BatchId("b")
    )
    return Held(op=op, epoch=1, attempt=1)


def judging(engine: Engine, *texts: str, renderer: Renderer = RENDERER) -> tuple[Judging, SampleWork]:
    result = RolledOut(prompt=NOTHING, sequences=(), texts=texts, queued_seconds=0.0, sampled_seconds=0.0)
    record = Record(id=OpId("r"), tenant=TenantId("t"), kind="roll_out", status=Status.DONE, attempts=1, result=result)
    work = SampleWork(engine)
    return Judging(work, work, renderer, lambda op: record if op == "r" and texts else None), work


def judged(work: Judging, claim: Held) -> Judged:
    result: Result = work(claim)
    assert isinstance(result, Judged)
    return result


def prompts(engine: Engine) -> list[str]:
    said = PreTrainedTokenizerFast.decode
    return [str(said(tokenizer(), list(request.prompt), skip_special_tokens=False)) for request in engine.asked]


def test_each_text_is_asked_about_and_each_answer_told() -> None:
    engine = Engine()
    result = judged(judging(engine, "one", "two")[0], held(text=("Is ", " or ", " it?")))
    assert [prompt.removeprefix("<s>") for prompt in prompts(engine)] == ["Is one or one it?", "Is two or two it?"]
    assert [(each.sample, each.texts) for each in result.answers] == [(0, ("Hi", "Hi")), (1, ("Hi", "Hi"))]
    assert result.dropped == ()
    asked = engine.asked[0]
    assert (asked.policy, asked.params, asked.num_samples) == ("p", PARAMS, 2)
    assert (asked.tenant, asked.sampler) == ("t", "b.judge")


def test_messages_are_rendered_with_the_judges_template() -> None:
    engine = Engine()
    said = (Said(role="system", pieces=("Be fair.",)), Said(role="user", pieces=("<<", ">>")))
    judged(judging(engine, "one")[0], held(messages=said))
    chat = [{"role": "system", "content": "Be fair."}, {"role": "user", "content": "<<one>>"}]
    whole = tokenizer().apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert prompts(engine) == [whole]


def test_special_tokens_that_a_text_spells_out_are_letters() -> None:
    """Or it could end the question and answer it."""
    special, ids = tokenizer().all_special_tokens, tokenizer().all_special_ids
    engine = Engine()
    judged(judging(engine, "".join(special), "a")[0], held(messages=(Said(role="user", pieces=("", "")),)))
    attack, harmless = ([token for token in request.prompt if token in ids] for request in engine.asked)
    assert special and attack == harmless
    assert "".join(special) in prompts(engine)[0]


def test_a_text_that_is_too_long_costs_the_others_nothing() -> None:
    engine = Engine(at_1=FieldInvalid("prompt", "has 99 tokens"), at_2=FieldInvalid("sampling_params.max_tokens", "no"))
    result = judged(judging(engine, "a", "b", "c")[0], held(text=("", "")))
    assert [each.sample for each in result.answers] == [0]
    assert [(each.sample, each.error, each.reason) for each in result.dropped] == [
        (1, "FieldInvalid", "rewards[1].params.text: has 99 tokens"),
        (2, "FieldInvalid", "rewards[1].params.sampling.max_tokens: no"),
    ]


def test_an_engine_that_fails_fails_the_op_and_the_rest_is_not_computed() -> None:
    engine = Engine(at_0=EngineBusy("it closes"), at_1=None)
    with pytest.raises(EngineBusy):
        judging(engine, "a", "b")[0](held(text=("", "")))
    assert engine.cancelled == 1


def test_a_judge_needs_a_chat_template_for_messages_and_one_that_says_them_once() -> None:
    bare = tokenizer()
    bare.chat_template = None
    work, _ = judging(Engine(), "a", renderer=Renderer(bare))
    with pytest.raises(FieldInvalid, match=r"rewards\[1\]\.params\.messages: m has no chat template"):
        work(held(messages=(Said(role="user", pieces=("", "")),)))
    bare.chat_template = "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
    with pytest.raises(FieldInvalid, match=r"messages: the chat template of m does not say each message once"):
        work(held(messages=(Said(role="user", pieces=("", "")),)))


def test_samples_that_are_gone_are_an_error() -> None:
    with pytest.raises(OpNotFound):
        judging(Engine())[0](held(text=("", "")))


def test_whoever_goes_ends_all_that_is_asked() -> None:
    for leave, error in (("abort", ClaimLost), ("drain", Draining)):
        engine = Engine(at_0=None, at_1=None)
        work, _ = judging(engine, "a", "b")
        engine.submit = _leaving(engine, work, leave)  # type: ignore[method-assign]
        with pytest.raises(error):
            work(held(text=("", "")))
        assert engine.cancelled == 2


def _leaving(engine: Engine, work: Judging, leave: str) -> Any:
    """Submits, and has the worker let go of it a moment after the last."""
    from threading import Timer

    whole = engine.submit

    def submit(request: SampleRequest) -> Future[SampleResult]:
        future = whole(request)
        if len(engine.asked) == 2:
            Timer(0.05, (lambda: work.abort(OpId("j"))) if leave == "abort" else work.drain).start()
        return future

    return submit
