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
    full_runs: bool = False  #: whether runs may train all weights
    trainable: bool = True
    sampleable: bool = True
    bounded: bool = True  #: False where no worker has told the figures yet: who carries an op out checks it

    def answers_to(self, name: str) -> bool:
        return name == self.name or name in self.aliases

    def tokenizer_for(self, requested: str, *, same_machine: bool) -> str:
        """What a client who asked for `requested` can load the tokenizer by: a folder of ours is of use on this machine
        only, elsewhere it is a hub id that the model answers to (the folder where there is none)."""
        if same_machine:
            return self.tokenizer_id
        hub_ids = (name for name in (requested, self.name, *self.aliases) if is_hub_id(name))
        return next(hub_ids, self.tokenizer_id)


def is_hub_id(name: str) -> bool:
    """Whether it has the form `org/name`."""
    org, slash, rest = name.partition("/")
    return bool(org and slash and rest) and "/" not in rest and not org.startswith((".", "~"))
