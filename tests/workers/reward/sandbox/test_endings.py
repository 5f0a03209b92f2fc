"""How the model's code ends, whatever it does to its answer, at each level that promises to hold it."""

import os
import signal
import threading

import psutil
import pytest
from attacking import LIMITS, Attack

from openrl.domain.errors import GraderFailed
from workers.reward.execution import Ending
from workers.reward.grading import _run_in
from workers.reward.sandbox.nursery import Nursery


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("def attempt(): return 'x' * (4 << 20)", Ending.OUTPUT),
        ("import os\ndef attempt():\n    while True: os.write(3, b'x' * 65536)", Ending.OUTPUT),
        ("import os\ndef attempt():\n    while True: os.write(3, b'\\0\\0\\0\\2{}')", Ending.ANSWERED),
        ("import os\ndef attempt(): os.close(3)", Ending.EXITED),
        ("import os\ndef attempt(): os.write(3, b'\\0\\0\\0\\1x')", Ending.OUTPUT),
        ("import os\ndef attempt(): os._exit(0)", Ending.EXITED),
        ("import os\ndef attempt(): os.abort()", Ending.EXITED),
        ("import ctypes\ndef attempt(): ctypes.string_at(0)", Ending.EXITED),
    ],
)
def test_whatever_it_does_to_its_answer_is_its_own_doing(attack: Attack, code: str, ending: Ending) -> None:
    assert attack(code, seconds=1)["ending"] is ending


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("import os\ndef attempt():\n    while True: os.write(1, b'x' * 65536)", Ending.TIME),
        ("import os, time\ndef attempt():\n    os.close(3)\n    time.sleep(60)", Ending.EXITED),
    ],
)
def test_what_goes_on_without_an_answer_has_its_time_and_no_more(attack: Attack, code: str, ending: Ending) -> None:
    assert attack(code, seconds=0.3)["ending"] is ending


def test_nothing_runs_on(attack: Attack, nursery: Nursery) -> None:
    def family() -> set[int]:
        return {process.pid for process in psutil.Process().children(recursive=True)}

    before = family()
    attack("import threading, time\ndef attempt():\n    threading.Thread(target=time.sleep, args=(60,)).start()")
    attack("import time\ndef attempt(): time.sleep(60)", seconds=0.2)
    assert family() == before


def test_a_child_that_is_killed_from_outside_is_no_result(nursery: Nursery) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    child = nursery.fork("execute", LIMITS)
    (process,) = [one for one in psutil.Process().children(recursive=True) if one.pid not in before]
    threading.Timer(0.1, lambda: os.kill(process.pid, signal.SIGKILL)).start()
    order = {"code": "import time\ntime.sleep(60)", "calls": [{"eval": "1"}]}
    with pytest.raises(GraderFailed, match="signal 9"):
        _run_in(child, order, 30, LIMITS, "texts[0]", on_disk=False)
    child.close()
