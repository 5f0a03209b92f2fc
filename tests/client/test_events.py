import pytest

from openrl.client.events import KEEP_ALIVE, Event, Reading

STREAM = (
    b": keep-alive\n\n"
    b'id: 1\nevent: group\ndata: {"text": "\xe2\x80\xa8 ends no line"}\n\n'
    b'id: 2\r\nevent: group\r\ndata: {"n": 2}\r\n\r\n'
    b'id: 2\nevent: end\ndata: {"over": true}\n\n'
    b'id: 3\nevent: group\ndata: {"n": 3}\n\n'
)
EVENTS = [
    Event(KEEP_ALIVE),
    Event("group", {"text": "\u2028 ends no line"}),
    Event("group", {"n": 2}),
    Event("end", {"over": True}),
]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_whole_however_the_bytes_come(size):
    reading = Reading()
    reading.reopen()
    parts = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert [event for part in parts for event in reading.feed(part)] == EVENTS
    assert reading.over


def test_wherever_a_stream_breaks_it_goes_on_behind_the_last_whole_event():
    blocks = [
        block + b"\n\n" for block in (b'id: 1\nevent: group\ndata: {"n": 1}', b'id: 2\nevent: end\ndata: {"n": 2}')
    ]
    whole = b"".join(blocks)
    for cut in range(len(whole)):
        reading = Reading()
        assert "last-event-id" not in reading.reopen()
        before = list(reading.feed(whole[:cut]))
        seen = int(reading.reopen().get("last-event-id", 0))
        assert seen == len(before) == (cut >= len(blocks[0]))
        rest = list(reading.feed(b"".join(blocks[seen:])))
        assert [event.fields["n"] for event in before + rest] == [1, 2]
        assert reading.reopen()["last-event-id"] == "2"


def test_an_event_without_an_id_moves_nothing():
    reading = Reading()
    list(reading.feed(b"id: 4\nevent: group\ndata: {}\n\nevent: news\ndata: {}\n\n"))
    assert reading.reopen()["last-event-id"] == "4"


def test_a_comment_before_the_first_event_moves_nothing():
    reading = Reading()
    list(reading.feed(b": keep-alive\n\n"))
    assert "last-event-id" not in reading.reopen()
