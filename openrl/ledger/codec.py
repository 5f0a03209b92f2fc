"""Actions, results, failures and bells as msgpack. Knows the domain's dataclasses, and nothing of rows or shelves.

An action or result is told by its `kind`, which is kept beside the bytes. Tensors travel as raw bytes, uncopied.
"""

from typing import Any, get_args

import msgspec

from openrl.domain.op import Action, Bell
from openrl.domain.outcome import Failure, Result
from openrl.domain.rollout import After, Sums

_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    shape.kind: msgspec.msgpack.Decoder(shape) for shape in (*get_args(Action), *get_args(Result))
}
_AFTERS = msgspec.msgpack.Decoder(After)
_BELLS = msgspec.msgpack.Decoder(Bell)
_FAILURES = msgspec.msgpack.Decoder(Failure)


def encode(thing: Action | Result | Bell | Failure | After | Sums) -> bytes:
    return _ENCODER.encode(thing)


def decode(kind: str, data: bytes) -> Any:
    """The action or result of that kind. Raises KeyError for a kind that is neither, msgspec.DecodeError for bytes
    that are not of that kind."""
    return _DECODERS[kind].decode(data)


def decode_after(data: bytes) -> After:
    return _AFTERS.decode(data)


def decode_bell(data: bytes) -> Bell:
    return _BELLS.decode(data)


def decode_failure(data: bytes) -> Failure:
    return _FAILURES.decode(data)
