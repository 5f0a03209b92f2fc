"""Bodies, bounded while they are read and while they are decompressed."""

import io
from contextlib import suppress
from typing import Final

import zstandard
from starlette.requests import Request

from openrl.domain.errors import BodyInvalid, BodyTooLarge

#: Compressed bytes decoded at a time: at zstd's best they become some megabytes, which is what may lie above the limit.
FED_BYTES: Final = 256
#: Largest window of a zstd frame, which is memory the decoder takes; level 22 needs this much.
WINDOW_BYTES: Final = 1 << 27


async def read_body(request: Request, limit: int) -> bytes:
    """The body as sent. Raises BodyTooLarge, without reading on, as soon as it is known to be."""
    body, whole = await read_within(request, limit)
    if not whole:
        raise BodyTooLarge(limit)
    return body


async def read_within(request: Request, limit: int) -> tuple[bytes, bool]:
    """The body and True, or only its beginning and False where it is larger than `limit`."""
    announced = request.headers.get("content-length", "")
    too_large = announced.isdecimal() and int(announced) > limit
    pieces, size = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if too_large or size > limit:
            return pieces[0], False
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), True


def decoded_start(body: bytes, encoding: str, size: int) -> bytes:
    """Up to `size` bytes of the body without its content encoding."""
    if encoding != "zstd":
        return body[:size]
    with suppress(zstandard.ZstdError), _unzstd(body) as reader:
        return reader.read(size)
    return b""


def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its content encoding. Raises BodyInvalid, BodyTooLarge; never holds much more than `limit`."""
    if encoding in ("", "identity"):
        return body
    if encoding != "zstd":
        raise BodyInvalid(f"content-encoding {encoding!r} is not accepted; send zstd or none")
    frame = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()
    pieces, size = [], 0
    try:
        for start in range(0, len(body), FED_BYTES):
            if frame.eof:
                break
            pieces.append(frame.decompress(body[start : start + FED_BYTES]))
            size += len(pieces[-1])
            if size > limit:
                raise BodyTooLarge(limit)
    except zstandard.ZstdError as error:
        raise BodyInvalid(f"not a zstd frame: {error}") from None
    if not frame.eof:
        raise BodyInvalid("the zstd frame ends early; send it again in full")
    return b"".join(pieces)


def _unzstd(body: bytes) -> zstandard.ZstdDecompressionReader:
    return zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).stream_reader(io.BytesIO(body))
