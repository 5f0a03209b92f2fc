from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from openrl.models import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny.make(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def test_it_is_a_llama_of_the_promised_shape(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    config = model.config
    assert type(model).__name__ == "LlamaForCausalLM"
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (512, 64, 2)
    assert (config.num_attention_heads, config.num_key_value_heads, config.intermediate_size) == (4, 2, 128)
    assert config.max_position_embeddings == 2048
    assert model.dtype is torch.float32


def test_its_weights_are_the_same_every_time() -> None:
    torch.manual_seed(1)
    first = tiny.network().state_dict()
    torch.manual_seed(2)
    second = tiny.network().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("text", ["Hello, world!", " the cat\n\n\tsat 123", "çé 🙂 日本語", ""])
def test_any_text_comes_back(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_common_words_are_one_token(tokenizer: Any) -> None:
    assert len(tokenizer.encode(" the of and")) == 3


def test_every_token_id_of_the_vocabulary_has_a_token(tokenizer: Any) -> None:
    assert len(tokenizer) == tiny.VOCAB_SIZE
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)


def test_encoding_adds_no_special_tokens(tokenizer: Any) -> None:
    assert not {0, 1, 2, 3} & set(tokenizer.encode("hello"))


def test_its_chat_template_ends_each_turn(tokenizer: Any) -> None:
    turns = [{"role": "user", "content": "hi"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == "<bos><turn>user\nhi<eos>\n<turn>assistant\n"
