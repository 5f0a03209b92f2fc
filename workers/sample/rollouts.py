"""Rollouts, as samples: a prompt becomes tokens before the sample engine sees it, and samples become texts after it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from openrl.domain.errors import FieldInvalid
from openrl.domain.ids import OpId, TenantId
from openrl.domain.op import Sample, SampleOp
from openrl.domain.outcome import Result, Sampled
from openrl.domain.rollout import Message, RolledOut, RollOut
from openrl.domain.tensor import DType, Tensor
from openrl.ledger.port import Held
from workers.model.arrays import from_domain, to_domain
from workers.sample.turns import Turns
from workers.work import Work


class Renderer:
    """Prompts as tokens and tokens as texts, by a base model's tokenizer (of `transformers`), which refuses two threads
    at once. A long text takes it a while: tenants have it in turn."""

    def __init__(self, tokenizer: Any, turns: Turns | None = None, tenant: str = "") -> None:
        self._tokenizer, self._turns, self._tenant = tokenizer, turns or Turns(), tenant

    def of(self, tenant: TenantId) -> "Renderer":
        """The same, in that tenant's turns."""
        return Renderer(self._tokenizer, self._turns, tenant)

    def tokens(self, action: RollOut) -> Tensor:
        """int32 [P]. Raises FieldInvalid of the prompt where it cannot be rendered."""
        if action.tokens is not None:
            return action.tokens
        if action.messages:
            ids = self.ids(self.said(action.messages, f"{action.where}.messages", action.base_model), begins=False)
        else:
            ids = self.ids(action.text or "", begins=True)
        if not ids:
            raise FieldInvalid(action.where, "has no tokens; send at least one character")
        return to_domain(ids, DType.INT32)

    def text(self, tokens: Tensor) -> str:
        """Without special tokens, such as the one that ends a turn."""
        with self._turns.mine(self._tenant):
            return str(self._tokenizer.decode(from_domain(tokens).tolist(), skip_special_tokens=True))

    def said(self, messages: Sequence[Message], where: str, model: str) -> str:
        """A chat by the template of the model, up to where it answers. Raises FieldInvalid where it cannot be said."""
        if not getattr(self._tokenizer, "chat_template", None):
            raise FieldInvalid(where, f"{model} has no chat template; send text or tokens")
        chat = [{"role": message.role, "content": message.content} for message in messages]
        try:
            with self._turns.mine(self._tenant):
                said = self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # a template is a program of the model's maker and may raise anything
            raise FieldInvalid(where, f"the chat template of {model} refuses them: {error}") from error
        return str(said)

    def ids(self, text: str, *, begins: bool) -> list[int]:
        """Tokens of a text; one that begins the prompt has the tokens that the tokenizer adds there."""
        with self._turns.mine(self._tenant):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=begins)
        return ids

    def plain_ids(self, text: str) -> list[int]:
        """Tokens of a text in which a special token's name is letters like any others."""
        with self._turns.mine(self._tenant):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return ids


def renderer_of(source: str) -> Renderer:
    """By the tokenizer in that folder; one of its own, since others may use theirs in other threads."""
    from transformers import AutoTokenizer

    return Renderer(AutoTokenizer.from_pretrained(source))


class RollOuts:
    """A `Work` that does RollOuts with one that does samples, to which all else goes as it is."""

    def __init__(self, work: Work, renderer: Renderer) -> None:
        self._work, self._renderer = work, renderer

    def __call__(self, held: Held) -> Result:
        op = held.op
        if not (isinstance(op, SampleOp) and isinstance(op.action, RollOut)):
            return self._work(held)
        began, renderer = time.monotonic(), self._renderer.of(op.tenant)
        sample = _sample(op.action, renderer.tokens(op.action))
        sampled = _named(op.action, lambda: self._work(replace(held, op=replace(op, action=sample))))
        assert isinstance(sampled, Sampled)
        sequences = sampled.result.sequences
        return RolledOut(
            prompt=sample.prompt,
            sequences=sequences,
            texts=tuple(renderer.text(sequence.tokens) for sequence in sequences),
            queued_seconds=held.waited_seconds,
            sampled_seconds=time.monotonic() - began,
        )

    def abort(self, op_id: OpId) -> None:
        self._work.abort(op_id)

    def drain(self) -> None:
        self._work.drain()


def _sample(action: RollOut, prompt: Tensor) -> Sample:
    return Sample(
        base_model=action.base_model,
        policy=action.policy,
        prompt=prompt,
        num_samples=action.num_samples,
        params=action.params,
    )


def _named(action: RollOut, work: Callable[[], Result]) -> Result:
    """Errors of a sample, in the names that a request for rollouts has for its fields."""
    try:
        return work()
    except FieldInvalid as error:
        field = error.field.replace("sampling_params", "sampling", 1).replace("num_samples", "group_size", 1)
        if field.split(".")[0] == "prompt":
            field = field.replace("prompt", action.where, 1)
        raise FieldInvalid(field, error.problem) from error
