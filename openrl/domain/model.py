"""What a worker says of the base model it serves, so that the gateway can check requests without loading it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    name: str  #: canonical: what the operator asked for (a hub id, a name of ours, or a folder)
    aliases: tuple[str, ...] = field(default=())  #: other spellings that clients may use
    tokenizer_id: str  #: what `AutoTokenizer.from_pretrained` takes: the hub id, else the folder
    architecture: str
    vocab_size: int
    context_length: int  #: tokens
    max_lora_rank: int = 256
    trainable: bool = True
    sampleable: bool = True

    def answers_to(self, name: str) -> bool:
        return name == self.name or name in self.aliases
