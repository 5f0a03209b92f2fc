from collections.abc import Callable

from transformers import PreTrainedModel

from workers.model.base import BaseModel


def test_sizes_are_those_of_the_model(make_module: Callable[[str], PreTrainedModel], family: str) -> None:
    size = BaseModel(make_module(family), "tiny").size
    assert (size.layers, size.hidden, size.intermediate, size.linears) == (2, 32, 48, 7)
    assert (size.heads, size.queries, size.keys, size.vocab, size.item_bytes) == (4, 32, 16, 97, 4)


def test_a_family_with_more_normalisations_and_a_window_is_told_apart(
    make_module: Callable[[str], PreTrainedModel],
) -> None:
    llama, gemma = (BaseModel(make_module(name), "tiny").size for name in ("llama", "gemma3"))
    assert (llama.norms, llama.head_norms, llama.window_layers) == (2, False, 0)
    assert (gemma.norms, gemma.head_norms, gemma.window, gemma.window_layers) == (4, True, 4, 1)
