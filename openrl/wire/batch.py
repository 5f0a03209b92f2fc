"""forward_backward: the protobuf request into an action, and its result back. Knows which inputs a loss takes only
through `openrl.domain.losses`."""

import io
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
from google.protobuf.message import DecodeError

from openrl.domain.datum import Datum, Loss
from openrl.domain.errors import BodyInvalid, FieldInvalid
from openrl.domain.limits import check_context, outside
from openrl.domain.losses import RULES, TARGETS, check_config, check_datum
from openrl.domain.model import ModelCard
from openrl.domain.op import ForwardBackward
from openrl.domain.outcome import BatchResult
from openrl.domain.tensor import DType, Tensor
from openrl.wire import tinker_pb2 as pb
from openrl.wire.arrays import Allowance, Array, array_of, read_tensor, read_tokens, tensor_of
from openrl.wire.base import INT32, NamedTurn
from openrl.wire.crowd import crowded

#: Known to the SDK, not to us; said plainly, so that nobody takes another loss for them.
NOT_SERVED = frozenset({"gspo", "stable_reinforce", "custom"})


#: Datums, chunks and inputs of one request, all counted together; a chunk of the SDK has some thousands.
MOST_PARTS = 200_000
DATA = pb.ForwardBackwardRequest.DESCRIPTOR.fields_by_name["data"].number


def read_request(body: bytes) -> pb.ForwardBackwardRequest:
    """Raises BodyInvalid for bytes that are no such message, FieldInvalid for one of too many parts."""
    if crowded(body, DATA, MOST_PARTS):
        raise FieldInvalid("data", f"has more than {MOST_PARTS} datums, chunks and inputs; send fewer per request")
    try:
        return pb.ForwardBackwardRequest.FromString(body)
    except DecodeError as error:
        raise BodyInvalid(f"not a protobuf ForwardBackwardRequest: {error}") from None


def turn_in(start: bytes) -> NamedTurn | None:
    """The turn that a request means to take, from its first bytes alone: the SDK writes these two fields first."""
    reader = io.BytesIO(start)
    if reader.read(1) != b"\x0a":  # field 1, a string
        return None
    name = reader.read(min(_varint(reader), len(start)))
    if reader.read(1) != b"\x10":  # field 2, a varint
        return None
    number = _varint(reader)
    return NamedTurn(name.decode(errors="replace"), number) if 1 <= number <= INT32 else None


def to_forward_backward(request: pb.ForwardBackwardRequest, card: ModelCard, dense_bytes: int) -> ForwardBackward:
    """The action, every number of it checked. `dense_bytes` bounds what sparse tensors may grow to. Raises
    FieldInvalid naming the datum, the input and the position."""
    loss = to_loss(request.loss_fn)
    config = to_config(request)
    check_config(loss, config)
    if not request.data:
        raise FieldInvalid("data", "is empty; send at least one datum")
    allowance = Allowance(dense_bytes)
    data = tuple(to_datum(message, loss, card, f"data[{at}]", allowance) for at, message in enumerate(request.data))
    check_values(data, card.vocab_size)
    return ForwardBackward(data=data, loss=loss, loss_config=config, forward_only=request.forward_only)


def to_loss(name: str) -> Loss:
    served = ", ".join(RULES)
    if name in NOT_SERVED:
        raise FieldInvalid("loss_fn", f"{name!r} is not supported by this server; choose one of {served}")
    if name not in set(Loss):
        raise FieldInvalid("loss_fn", f"{name!r} is not a loss; choose one of {served}")
    return Loss(name)


def to_config(request: pb.ForwardBackwardRequest) -> dict[str, float]:
    """Version 2 of the map holds all keys; where it is absent the numbers-only one counts."""
    config = dict(request.loss_fn_config)
    for key, value in request.loss_fn_config_v2.items():
        if value.WhichOneof("value") != "number":
            raise FieldInvalid(f"loss_fn_config.{key}", f"is {value.text!r}; it must be a number")
        config[key] = value.number
    return config


def to_datum(message: pb.Datum, loss: Loss, card: ModelCard, where: str, allowance: Allowance) -> Datum:
    tokens = read_tokens(list(_texts(message, f"{where}.model_input")), f"{where}.model_input")
    check_context(tokens.elements, card.context_length, f"{where}.model_input")
    inputs = {
        name: read_tensor(tensor, f"{where}.loss_fn_inputs.{name}", allowance)
        for name, tensor in message.loss_fn_inputs.items()
    }
    datum = Datum(tokens=tokens, inputs=inputs)
    check_datum(loss, datum, where)
    return datum


def check_values(data: Sequence[Datum], vocab_size: int) -> None:
    """Tokens and targets lie in the vocabulary, numbers are finite. Looks at everything at once first, and searches for
    the culprit only where there is one."""
    _check_ids([(f"data[{at}].model_input", datum.tokens) for at, datum in enumerate(data)], vocab_size)
    named = [
        (f"data[{at}].loss_fn_inputs.{name}", tensor)
        for at, datum in enumerate(data)
        for name, tensor in datum.inputs.items()
    ]
    _check_ids([(where, tensor) for where, tensor in named if where.endswith(f".{TARGETS}")], vocab_size)
    _check_finite([(where, tensor) for where, tensor in named if tensor.dtype is DType.FLOAT32])


def batch_output(result: BatchResult) -> bytes:
    """A `ForwardBackwardOutput`: one record for each run of datums that agree in their trailing shape."""
    runs = groupby(result.logprobs, key=lambda tensor: tensor.shape[1:])
    output = pb.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord",
        loss_fn_outputs=[_record(list(tensors), trailing) for trailing, tensors in runs],
        metrics=result.metrics,
    )
    return output.SerializeToString()


def _varint(reader: io.BytesIO) -> int:
    """As protobuf writes it; 0 where the bytes end early."""
    value = shift = 0
    while byte := reader.read(1):
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
        shift += 7
    return 0


def _texts(message: pb.Datum, where: str) -> Iterable[bytes]:
    if not message.model_input:
        raise FieldInvalid(where, "has no tokens; leave empty datums out")
    for at, chunk in enumerate(message.model_input):
        kind = chunk.WhichOneof("chunk")
        if kind != "encoded_text":
            raise FieldInvalid(f"{where}.chunks[{at}]", f"{kind or 'empty'} chunks are not supported; send text tokens")
        yield chunk.encoded_text.tokens


def _check_ids(named: Sequence[tuple[str, Tensor]], vocab_size: int) -> None:
    for dtype in (DType.INT32, DType.INT64):
        chosen = [(where, tensor) for where, tensor in named if tensor.dtype is dtype]
        if _in_vocabulary(_together(chosen, dtype), vocab_size):
            continue
        for where, tensor in chosen:
            ids = array_of(tensor).ravel()
            if not _in_vocabulary(ids, vocab_size):
                at = int(np.flatnonzero((ids < 0) | (ids >= vocab_size))[0])
                raise outside(where, int(ids[at]), at, vocab_size)


def _in_vocabulary(ids: Array, vocab_size: int) -> bool:
    return ids.size == 0 or bool(ids.min() >= 0 and ids.max() < vocab_size)


def _check_finite(named: Sequence[tuple[str, Tensor]]) -> None:
    if np.isfinite(_together(named, DType.FLOAT32)).all():
        return
    for where, tensor in named:
        values = array_of(tensor)
        if not np.isfinite(values).all():
            at = np.argwhere(~np.isfinite(values))[0]
            raise FieldInvalid(f"{where}[{', '.join(map(str, at))}]", f"{values[tuple(at)]} is not finite")


def _together(named: Sequence[tuple[str, Tensor]], dtype: DType) -> Array:
    data = b"".join(tensor.data for _, tensor in named)
    return array_of(Tensor(dtype=dtype, shape=(len(data) // (8 if dtype is DType.INT64 else 4),), data=data))


def _record(tensors: list[Tensor], trailing: tuple[int, ...]) -> pb.ArrayRecord:
    offsets = np.cumsum([0, *(len(tensor.data) for tensor in tensors)], dtype="<i8")
    logprobs = pb.BatchedTensor(
        data=b"".join(tensor.data for tensor in tensors),
        offsets=tensor_of(offsets).data,
        dtype=pb.DTYPE_FLOAT32,
        trailing_shape=trailing,
    )
    return pb.ArrayRecord(type_tag="ArrayRecord", fields={"logprobs": logprobs}, num_datums=len(tensors))
