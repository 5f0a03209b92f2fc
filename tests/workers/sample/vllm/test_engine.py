import threading
import time
from concurrent.futures import CancelledError

import pytest
from fakes import MARKS, FakeVllm, ask
from numpy import frombuffer

from openrl.domain.errors import Draining, EngineBusy, FieldInvalid
from openrl.domain.sampling import Sequence, StopReason

pytestmark = MARKS


def tokens(sequence: Sequence) -> list[int]:
    return frombuffer(sequence.tokens.data, "<i4").tolist()


def test_requests_under_way_are_given_back_when_vllm_dies_and_nothing_is_taken_any_more(make):
    fake, died = FakeVllm(hangs=True), threading.Event()
    engine = make(fake, died=died.set)
    under_way = [engine.submit(ask()) for _ in range(3)]
    while len(fake.asked) < 3:
        time.sleep(0.01)
    fake.errored = True
    assert died.wait(10)
    for future in under_way:
        assert isinstance(future.exception(10), EngineBusy)
    with pytest.raises(Draining):
        engine.submit(ask()).result(10)


def test_what_was_drawn_is_counted_and_who_has_ended_is_no_row(make):
    engine = make(FakeVllm(apart=3))
    engine.submit(ask(7, num_samples=2)).result(10)
    use = engine.usage.read()
    assert (use.sample.tokens, engine.usage.rows) == (14, 0)
    assert 0 < use.busy_seconds < use.seconds


def test_a_request_that_comes_as_vllm_dies_loses_no_attempt(make):
    fake = FakeVllm(errored=True)
    assert isinstance(make(fake).submit(ask()).exception(10), Draining)
    assert not fake.asked


def test_closing_fails_what_is_unfinished_and_says_nothing_of_a_death(make):
    died = threading.Event()
    engine = make(FakeVllm(hangs=True), died=died.set)
    future = engine.submit(ask())
    engine.close()
    assert isinstance(future.exception(10), EngineBusy)
    assert not died.is_set()


def test_a_cancelled_request_is_aborted_in_vllm_all_its_samples(make):
    fake = FakeVllm(hangs=True)
    engine = make(fake)
    future = engine.submit(ask(num_samples=3))
    while len(fake.asked) < 3:
        time.sleep(0.01)
    engine.cancel(future)
    with pytest.raises(CancelledError):
        future.result(1)
    deadline = time.monotonic() + 10
    while fake.aborted < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert fake.aborted == 3


@pytest.mark.parametrize("apart", [1, 3, 8])
def test_a_stop_string_ends_at_its_token_however_many_come_at_once(make, apart):
    fake = FakeVllm(apart=apart)
    found = make(fake).submit(ask(stop_strings=("de",))).result(10).sequences[0]
    assert (tokens(found), found.stop_reason) == ([1, 2, 3, 4], StopReason.STOP)
    assert frombuffer(found.logprobs.data, "<f4").tolist() == [-1, -2, -3, -4]
    assert fake.aborted == (0 if apart == 8 else 1) or apart == 8


def test_samples_of_a_seed_have_luck_of_their_own_and_without_one_vllm_draws(make):
    fake = FakeVllm()
    engine = make(fake)
    engine.submit(ask(seed=7, num_samples=3)).result(10)
    engine.submit(ask(num_samples=2)).result(10)
    streams = [(params.extra_args or {}).get("openrl_stream") for params in fake.asked]
    assert len(set(streams[:3])) == 3 and None not in streams[:3]
    assert streams[3:] == [None, None]
    assert {params.seed for params in fake.asked} == {None}


def test_a_prompt_as_long_as_the_context_is_refused_even_if_it_is_only_scored(make):
    engine = make(FakeVllm())
    request = ask(0)
    long = type(request)(prompt=(5,) * 64, params=request.params, prompt_logprobs=True)
    error = engine.submit(long).exception(1)
    assert isinstance(error, FieldInvalid) and "63" in str(error)


def test_a_tenant_that_comes_late_gets_the_next_place_that_another_leaves(make):
    fake = FakeVllm(hangs=True)
    engine = make(fake)
    crowd = [engine.submit(ask(6, num_samples=50, tenant="anna")) for _ in range(4)]
    while len(fake.asked) < 4:
        time.sleep(0.01)
    late = engine.submit(ask(8, tenant="ben"))
    time.sleep(0.1)
    fake.hangs = False
    late.result(10)
    assert [at for at, params in enumerate(fake.asked) if params.max_tokens == 8] == [4]
    assert [len(future.result(10).sequences) for future in crowd] == [50] * 4


def test_who_gives_up_waiting_takes_no_place(make):
    fake = FakeVllm(hangs=True)
    engine = make(fake)
    crowd = [engine.submit(ask()) for _ in range(20)]
    while len(fake.asked) < 4:
        time.sleep(0.01)
    for future in [*crowd[4:18], *crowd[2:4]]:  # those that wait, then two that are in
        engine.cancel(future)
    while len(fake.asked) < 6:
        time.sleep(0.01)
    fake.hangs = False
    assert [future.cancelled() for future in crowd] == [not (at < 2 or at > 17) for at in range(20)]
    assert all(future.result(10) for future in [*crowd[:2], *crowd[18:]])
    assert len(fake.asked) == 6
