"""What `run.py` of the recipes of supervised fine-tuning makes of examples, with a tokenizer of single letters."""

import asyncio
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

END = 7  #: the token that the template puts behind what anybody says


class Letters:
    """Letters are their code points; the template puts '<' before what is said, and END with a line's end behind."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return [END if letter == "|" else ord(letter) for letter in text]

    def decode(self, tokens: list[int]) -> str:
        return "".join("|" if token == END else chr(token) for token in tokens)

    def apply_chat_template(self, messages: list[dict[str, str]], tokenize: bool = True, **_: Any) -> Any:
        text = "".join(f"<{message['content']}|\n" for message in messages)
        return self.encode(text + "<", add_special_tokens=False) if tokenize else text


@pytest.fixture(params=["sft_pig_latin", "function_calling"])
def recipe(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    folder = Path(__file__).parents[2] / "recipes" / request.param
    spec = importlib.util.spec_from_file_location(f"{request.param}_run", folder / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


def test_only_the_reply_and_its_end_are_learned(recipe: ModuleType) -> None:
    chat = recipe.Chat(Letters())
    example = SimpleNamespace(reply="yes", messages=lambda: [{"role": "user", "content": "ask"}])
    datum = chat.datum(example)
    read, targets, weights = (
        list(datum.model_input.to_ints()),
        list(datum.loss_fn_inputs["target_tokens"].data),
        list(datum.loss_fn_inputs["weights"].data),
    )
    assert chat.end == END
    assert Letters().decode(read) == "<ask|\n<yes"
    assert targets == [*read[1:], END]
    assert [target for target, weight in zip(targets, weights, strict=True) if weight] == [*map(ord, "yes"), END]
    assert set(weights) == {0.0, 1.0}


def test_the_end_is_no_part_of_what_was_said(recipe: ModuleType) -> None:
    chat = recipe.Chat(Letters())
    assert chat.text([*map(ord, "yes"), END]) == chat.text([*map(ord, "yes")]) == "yes"
    assert chat.text([]) == ""


def test_a_resumed_run_keeps_the_metrics_of_the_steps_before_it(recipe: ModuleType, tmp_path: Path) -> None:
    options = SimpleNamespace(out=tmp_path, steps=4)
    lines = [{"step": step, "loss": 1.0 - step / 10} for step in range(4)]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    log = recipe.Log(options, 2)
    log.add({"step": 2, "loss": 0.5})
    kept = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert kept == log.lines == [*lines[:2], {"step": 2, "loss": 0.5}]


def test_a_run_that_is_further_than_was_asked_for_is_not_resumed(recipe: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"step": 5, "path": "tinker://a/weights/b"}))
    with pytest.raises(SystemExit, match="step 5: --steps of at least"):
        asyncio.run(recipe.begin(None, SimpleNamespace(resume=True, out=tmp_path, steps=4)))
