"""`tiny`: a random Llama of 164 thousand parameters with a byte-level tokenizer of 512 tokens, the same everywhere.

For tests and first steps: it loads in milliseconds and behaves like any other base model, but it knows nothing.
"""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

hf: Any = transformers  # most of its calls are not typed

VOCAB_SIZE = 512
CONTEXT_LENGTH = 2048  #: tokens
PAD, BOS, EOS, TURN = "<pad>", "<bos>", "<eos>", "<turn>"  #: token ids 0 to 3
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<turn>{{ message['role'] }}\n{{ message['content'] }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
)
#: Each beginning of each word is a token, until the vocabulary is full.
WORDS = """
the of and to in is that it was for on are as with his they at be this from have or by one had not but what
all were when we there can an your which their said if do will each about how up out them then she many some so these
would other into has more her two like him see time could no make than first been its who now people my made over did
down only way find use may water long little very after words called just where most know get through back much before
go good new write our used me man too any day same right look think also around another came come work three word must
because does part
"""


def make(folder: Path) -> None:
    """Write the whole model folder."""
    tokenizer().save_pretrained(folder)
    network().save_pretrained(folder)


def network() -> Any:
    """A LlamaForCausalLM in float32; its weights come from a seed of ours, however transformers initialises."""
    config = hf.LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT_LENGTH,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = hf.LlamaForCausalLM(config).to(torch.float32)
    seeded = torch.Generator().manual_seed(20_240_501)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            if parameter.dim() == 2:  # norms keep their ones
                parameter.normal_(0.0, 0.1, generator=seeded)
    model.generation_config = hf.GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return model


def tokenizer() -> Any:
    """A PreTrainedTokenizerFast, byte-level: any text comes back as it was. Adds no special tokens by itself."""
    vocab, merges = _vocabulary()
    backend = Tokenizer(BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = ByteLevelDecoder()
    backend.add_special_tokens([AddedToken(token, special=True) for token in (PAD, BOS, EOS, TURN)])
    wrapped = hf.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=PAD, bos_token=BOS, eos_token=EOS, model_max_length=CONTEXT_LENGTH
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def _vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Specials, the 256 bytes, then the beginnings of ` word` for the words above; one merge for each of these."""
    tokens = [PAD, BOS, EOS, TURN, *sorted(ByteLevel.alphabet())]
    merges: list[tuple[str, str]] = []
    known = set(tokens)
    for word in WORDS.split():
        piece = "Ġ"  # how byte-level tokenizers spell a space
        for letter in word:
            longer = piece + letter
            if longer not in known and len(tokens) < VOCAB_SIZE:
                known.add(longer)
                tokens.append(longer)
                merges.append((piece, letter))
            piece = longer
    return {token: index for index, token in enumerate(tokens)}, merges
