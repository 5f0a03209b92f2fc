from queue import Empty

import pytest

from queues.hearing import Hearing, _tell_answers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def silence(hearing: Hearing, clock: Clock, **looks: bool) -> float:
    """After ten looks, a second apart."""
    for _ in range(10):
        clock.now += 1
        hearing.look(**{"full": False, "listens": True} | looks)
    return hearing.silent_seconds()


def test_before_the_first_bell_could_be_heard_nothing_is_amiss(clock: Clock) -> None:
    hearing = Hearing(clock)
    assert silence(hearing, clock) == 0.0 and not hearing.began


def test_a_consumer_that_the_broker_answers_is_well(clock: Clock) -> None:
    hearing = Hearing(clock)
    hearing.answered()
    hearing.look(full=False, listens=True)
    assert hearing.began and hearing.silent_seconds() == 0.0
    clock.now += 1
    hearing.answered()
    hearing.look(full=False, listens=True)
    assert hearing.silent_seconds() == 0.0


def test_a_consumer_that_nobody_answers_is_silent_from_the_last_answer_on(clock: Clock) -> None:
    hearing = Hearing(clock)
    hearing.answered()
    hearing.look(full=False, listens=True)
    assert silence(hearing, clock) == 10.0


def test_a_full_worker_asks_for_nothing_and_is_well(clock: Clock) -> None:
    hearing = Hearing(clock)
    assert silence(hearing, clock, full=True) == 0.0


def test_a_loop_that_does_not_come_round_is_silent_although_answers_came(clock: Clock) -> None:
    hearing = Hearing(clock)
    hearing.look(full=True, listens=True)
    clock.now += 10
    hearing.answered()
    assert hearing.silent_seconds() == 10.0


def test_without_one_of_its_queues_it_is_silent(clock: Clock) -> None:
    hearing = Hearing(clock)
    hearing.look(full=True, listens=True)
    assert silence(hearing, clock, full=True, listens=False) == 10.0


def test_an_empty_answer_counts_and_a_broken_connection_does_not(clock: Clock) -> None:
    class Channel:
        def __init__(self, *answers: object) -> None:
            self._answers = list(answers)
            self.handlers = {"BRPOP": self.read}

        def read(self) -> object:
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    hearing, channel = Hearing(clock), Channel(ConnectionError(), Empty(), True)
    _tell_answers(channel, hearing)
    read = channel.handlers["BRPOP"]
    with pytest.raises(ConnectionError):
        read()
    hearing.look(full=False, listens=True)
    assert not hearing.began
    with pytest.raises(Empty):
        read()
    hearing.look(full=False, listens=True)
    assert hearing.began
    assert read() is True
