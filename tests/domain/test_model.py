import pytest

from openrl.domain.model import ModelCard, is_hub_id

CARD = ModelCard(
    name="smollm2-135m",
    aliases=("/models/smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    tokenizer_id="/models/smollm2",
    architecture="llama",
    vocab_size=100,
    context_length=10,
)


@pytest.mark.parametrize(
    ("requested", "same_machine", "loads"),
    [
        ("smollm2-135m", True, "/models/smollm2"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", True, "/models/smollm2"),
        ("smollm2-135m", False, "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", False, "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ],
)
def test_a_client_is_told_a_tokenizer_it_can_load(requested: str, same_machine: bool, loads: str) -> None:
    assert CARD.tokenizer_for(requested, same_machine=same_machine) == loads


@pytest.mark.parametrize(
    ("name", "is_one"), [("org/name", True), ("name", False), ("/a/b", False), ("./a", False), ("a/b/c", False)]
)
def test_a_hub_id_has_an_organisation_and_a_name(name: str, is_one: bool) -> None:
    assert is_hub_id(name) is is_one
