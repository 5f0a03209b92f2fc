import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openrl.cli.child import Component
from openrl.cli.crew import Crew, Event, last_error
from openrl.cli.errors import ComponentDied, ComponentRefused
from openrl.cli.orphans import Watcher
from openrl.cli.supervisor import REFUSED, Rules

RULES = Rules(first_rest_seconds=0.01, hopeless_deaths=2)


def test_the_last_error_line_is_what_a_component_wants_to_say() -> None:
    assert last_error(("error: first", "error: port 1 is taken", "bye")) == "port 1 is taken"
    assert last_error(("only", "words")) == "words"
    assert last_error(()) == "it said nothing"


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def crew(events: list[Event]) -> Iterator[Crew]:
    watcher = Watcher()
    crew = Crew(watcher, events.append, RULES)
    yield crew
    crew.stop(lambda: True)
    watcher.close()


def _component(tmp_path: Path, code: str, is_ready: Callable[[int], bool] = lambda _pid: True) -> Component:
    return Component(
        name="part",
        command=(sys.executable, "-c", code),
        env=dict(os.environ),
        log=tmp_path / "part.log",
        address="",
        is_ready=is_ready,
    )


def _tick_until(crew: Crew, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
        crew.tick()
        time.sleep(0.01)


@pytest.mark.live
def test_a_killed_component_is_started_again_and_that_is_told(tmp_path: Path, crew: Crew, events: list[Event]) -> None:
    crew.add([_component(tmp_path, "import time; time.sleep(60)")])
    _tick_until(crew, lambda: crew.is_ready)
    first = crew.members["part"].child.pid
    os.kill(first, signal.SIGKILL)
    _tick_until(crew, lambda: len(events) == 3)
    assert [(event.exit_status, event.again) for event in events] == [(None, False), (-9, False), (None, True)]
    assert crew.members["part"].child.pid != first


@pytest.mark.live
def test_a_component_that_never_stays_up_ends_it_with_its_last_words(tmp_path: Path, crew: Crew) -> None:
    crew.add([_component(tmp_path, "print('no luck'); raise SystemExit(3)", is_ready=lambda _pid: False)])
    with pytest.raises(ComponentDied, match=r"(?s)part: stopped with exit status 3, 2 times.*part\.log:\n    no luck"):
        _tick_until(crew, lambda: False)


@pytest.mark.live
def test_a_component_that_tells_what_to_mend_ends_it_at_once(tmp_path: Path, crew: Crew) -> None:
    code = f"print('error: port 7 is taken'); raise SystemExit({REFUSED})"
    crew.add([_component(tmp_path, code, is_ready=lambda _pid: False)])
    with pytest.raises(ComponentRefused, match=r"^part: port 7 is taken$"):
        _tick_until(crew, lambda: False)
