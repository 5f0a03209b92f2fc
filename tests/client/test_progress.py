import io
import threading

from openrl.client import progress


def shown(monkeypatch, terminal):
    from rich import console

    told = io.StringIO()
    real = console.Console

    def made(**_):
        return real(file=told, force_terminal=terminal, width=160)

    monkeypatch.setattr(console, "Console", made)
    return told


def create(client, **options):
    asked = {"group_size": 2, "sampling": {"max_tokens": 3}, "reward": "length"}
    return client.rollouts.create(["A", "B"], "toy", **asked, **options)


def test_a_terminal_sees_a_bar(client, monkeypatch):
    told = shown(monkeypatch, True)
    batch = create(client)
    batch.results()
    last = told.getvalue()[-400:]
    assert f"rollouts {batch.id[:8]}" in last and "4/4" in last
    rewards = [reward for group in batch.results() for reward in group.rewards]
    assert f"reward {sum(rewards) / 4:.3f}" in last and "dropped" not in last
    assert progress._display is None


def test_what_was_dropped_is_told(client, gateway, monkeypatch):
    told = shown(monkeypatch, True)
    gateway.worker.before = lambda op: 1 / 0 if op.id.endswith("0.reward") else None
    create(client).results()
    assert ", 2 dropped" in told.getvalue()[-400:]


def test_nobody_is_shown_a_bar_who_cannot_see_it_or_said_no(client, monkeypatch):
    told = shown(monkeypatch, False)
    create(client).results()
    assert told.getvalue() == ""
    told = shown(monkeypatch, True)
    create(client, progress=False).results()
    assert told.getvalue() == ""


def test_a_batch_that_waits_tells_why(client, gateway, monkeypatch):
    from openrl.gateway import services, streams

    told, hold = shown(monkeypatch, True), threading.Event()
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.05)
    reasons = iter(["nobody knows yet"])
    monkeypatch.setattr(services.Services, "why_waiting", lambda self, record: next(reasons, "the sky is grey"))
    gateway.worker.before = lambda op: hold.wait(20)
    batch = create(client)
    reading = threading.Thread(target=batch.results)
    reading.start()
    while "the sky is grey" not in told.getvalue():
        assert reading.is_alive()
    hold.set()
    reading.join(20)
    assert "4/4" in told.getvalue()


def test_an_error_in_the_loop_takes_the_bar_down(client, monkeypatch):
    shown(monkeypatch, True)
    try:
        for _ in create(client):
            raise KeyError
    except KeyError:
        pass
    assert progress._display is None
