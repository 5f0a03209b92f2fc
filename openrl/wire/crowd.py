"""How many parts a protobuf message has, counted before it is parsed: an empty part takes two bytes on the way and some
sixty in memory. Knows the wire format and no schema."""

from collections.abc import Iterator

Field = tuple[int, memoryview]  #: its number, and its bytes where it has a length, else none

_EMPTY = memoryview(b"")


def crowded(body: bytes, nested: int, most: int) -> bool:
    """Whether the message has more than `most` fields, those one level down in its fields `nested` counted too."""
    left = most
    for number, inner in _fields(memoryview(body)):
        left -= 1
        if number == nested:
            for _ in _fields(inner):
                left -= 1
                if left < 0:
                    return True
        if left < 0:
            return True
    return False


def _fields(data: memoryview) -> Iterator[Field]:
    """Ends where the bytes are no message; the parser will say so."""
    at, end = 0, len(data)
    try:
        while at < end:
            tag, at = _varint(data, at)
            match tag & 7:
                case 0:
                    _, at = _varint(data, at)
                    yield tag >> 3, _EMPTY
                case 2:
                    size, at = _varint(data, at)
                    yield tag >> 3, data[at : at + size]
                    at += size
                case kind:
                    at += {1: 8, 5: 4}.get(kind, 0)  # groups have no length: what is in them counts here
                    yield tag >> 3, _EMPTY
    except IndexError:
        return


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number there and the place behind it. Raises IndexError where the bytes end."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value, shift = value & 0x7F, 7
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise IndexError("a varint has ten bytes at most")
