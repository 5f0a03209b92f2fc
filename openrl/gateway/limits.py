"""Bodies, bounded while they are read and while they are decompressed."""

import io
from typing import Final

import zstandard
from starlette.requests import Request

from openrl.domain.errors import BodyInvalid, BodyTooLarge

PIECE_BYTES: Final = 1 << 20
#: Largest window of a zstd frame, which is memory the decoder takes; level 22 needs this much.
WINDOW_BYTES: Final = 1 << 27


async def read_body(request: Request, limit: int) -> bytes:
    """The body as sent. Raises BodyTooLarge, without reading on, as soon as it is known to be."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise BodyTooLarge(limit)
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(limit)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its content encoding. Raises BodyInvalid, BodyTooLarge; never holds more than `limit`."""
    if encoding in ("", "identity"):
        return body
    if encoding != "zstd":
        raise BodyInvalid(f"content-encoding {encoding!r} is not accepted; send zstd or none")
    pieces, size = [], 0
    try:
        with zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).stream_reader(io.BytesIO(body)) as reader:
            while piece := reader.read(PIECE_BYTES):
                size += len(piece)
                if size > limit:
                    raise BodyTooLarge(limit)
                pieces.append(piece)
    except zstandard.ZstdError as error:
        raise BodyInvalid(f"not a zstd frame: {error}") from None
    return b"".join(pieces)
