import tracemalloc

import pytest
import zstandard

from openrl.domain.errors import BodyInvalid, BodyTooLarge
from openrl.gateway.limits import decoded, decoded_start


def test_zstd_is_undone():
    body = zstandard.ZstdCompressor().compress(b"x" * 1000)
    assert decoded(body, "zstd", 1000) == b"x" * 1000
    assert decoded(b"x", "", 1000) == b"x"
    assert decoded_start(body, "zstd", 10) == b"x" * 10
    assert decoded_start(b"broken", "zstd", 10) == b""


def test_a_bomb_takes_no_more_memory_than_the_limit():
    bomb = zstandard.ZstdCompressor().compress(bytes(200_000_000))
    assert len(bomb) < 20_000
    tracemalloc.start()
    with pytest.raises(BodyTooLarge):
        decoded(bomb, "zstd", 4_000_000)
    assert tracemalloc.get_traced_memory()[1] < 12_000_000
    tracemalloc.stop()


def test_what_is_not_what_it_says_is_refused():
    with pytest.raises(BodyInvalid, match="not a zstd frame"):
        decoded(b"nothing", "zstd", 100)
    with pytest.raises(BodyInvalid, match="content-encoding 'br' is not accepted"):
        decoded(b"nothing", "br", 100)


def test_a_compressed_batch_is_taken(http):
    run = http.run()
    body = zstandard.ZstdCompressor().compress(http.batch(run, 1))
    answer = http.forward_backward(body, **{"content-encoding": "zstd"})
    assert answer.status_code == 200
    http.result(http.step(run, 2).json()["request_id"])


def test_a_body_over_the_limit_is_refused_unread_and_its_turn_passes(gateway, http):
    run = http.run()
    start = http.batch(run, 1)
    pieces = (start, *[bytes(1_000_000)] * 200)
    length = {"content-length": str(len(start) + 200_000_000)}
    response = http.post("forward_backward", content=iter(pieces), headers=length)
    assert (response.status_code, response.json()["detail"][:32]) == (413, "request body: larger than 2 MB; ")
    http.result(http.step(run, 2).json()["request_id"])


def test_a_body_of_unknown_length_is_refused_when_it_grows_too_long(http):
    response = http.post("optim_step", content=(bytes(100_000) for _ in range(30)))
    assert response.status_code == 413


def test_a_bomb_is_refused_and_its_turn_passes(http):
    run = http.run()
    bomb = zstandard.ZstdCompressor().compress(http.batch(run, 1) + bytes(3_000_000))
    assert http.forward_backward(bomb, **{"content-encoding": "zstd"}).status_code == 413
    http.result(http.step(run, 2).json()["request_id"])


def test_a_frame_that_ends_early_is_not_taken_for_a_shorter_body():
    body = zstandard.ZstdCompressor().compress(bytes(range(256)) * 4000)
    with pytest.raises(BodyInvalid, match="ends early"):
        decoded(body[:-10], "zstd", 2_000_000)


def test_an_absurd_length_at_the_beginning_of_an_oversized_body_is_no_turn(http):
    start = b"\x0a" + b"\xff" * 30 + b"\x01"
    assert http.forward_backward(start + bytes(3_000_000)).status_code == 413


def test_json_has_less_room_than_arrays(http):
    """Unpacked it takes some hundred times its size, and the interpreter for as long."""
    padding = b" " * 1_100_000
    refused = http.post("optim_step", content=b"{" + padding + b"}")
    assert (refused.status_code, refused.json()["detail"][:31]) == (413, "request body: larger than 1 MB;")
    assert http.post("asample", content=b"{" + padding + b"}").status_code == 422
