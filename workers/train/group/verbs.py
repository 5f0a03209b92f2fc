"""What rank 0 tells the others to do, as msgpack. The files of a `Put` follow it one by one, outside of it."""

from typing import Any

import msgspec

from openrl.domain.run import AdamParams
from openrl.domain.tensor import Tensor
from workers.train.batch import Batch


class Put(msgspec.Struct, frozen=True, tag=True):
    """A run with the state in a snapshot's files."""

    run: str
    files: list[str]  #: names, in the order in which their bytes follow


class Drop(msgspec.Struct, frozen=True, tag=True):
    run: str


class Train(msgspec.Struct, frozen=True, tag=True):
    """One forward_backward."""

    batches: list[Batch]


class Step(msgspec.Struct, frozen=True, tag=True):
    """An optimizer step of each of these runs."""

    asked: list[tuple[str, AdamParams]]


class Stop(msgspec.Struct, frozen=True, tag=True):
    """The group ends as it should."""


Verb = Put | Drop | Train | Step | Stop


class Part(msgspec.Struct, frozen=True):
    """What one rank's rows of a pack came to, gradients apart."""

    sums: list[dict[str, float]]  #: by batch
    logprobs: list[tuple[int, int, Tensor]]  #: batch, datum, and its log-probabilities


_ENCODER = msgspec.msgpack.Encoder()
_VERBS: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Verb)
_PARTS = msgspec.msgpack.Decoder(Part)


def encode(thing: Verb | Part) -> bytes:
    return _ENCODER.encode(thing)


def decode_verb(data: bytes) -> Verb:
    """Raises msgspec.DecodeError."""
    verb: Verb = _VERBS.decode(data)
    return verb


def decode_part(data: bytes) -> Part:
    """Raises msgspec.DecodeError."""
    return _PARTS.decode(data)
