"""What the model's code may take of the machine, at each level that promises to hold it."""

import time

import pytest
from attacking import Attack, refused, result

from workers.reward.execution import Ending
from workers.reward.grading import _run_in
from workers.reward.sandbox.levels import Level
from workers.reward.sandbox.limits import Limits
from workers.reward.sandbox.nursery import Nursery


def test_what_is_harmless_works(attack: Attack) -> None:
    ran = attack(
        """
        import asyncio, decimal, json, math, random, re, sqlite3, statistics, tempfile, threading, zoneinfo
        def attempt():
            done = []
            thread = threading.Thread(target=lambda: done.append(1)); thread.start(); thread.join()
            async def wait(): await asyncio.sleep(0.001); return 2
            with tempfile.TemporaryDirectory() as folder:
                with open(folder + "/f", "w") as file: file.write("3")
                with open(folder + "/f") as file: done += [asyncio.run(wait()), int(file.read())]
            return [*done, sqlite3.connect(":memory:").execute("select 4").fetchone()[0]]
        """
    )
    assert result(ran) == {"value": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    "way",
    [
        "os.fork()",
        "[os.fork() for _ in range(10_000)]",
        "os.forkpty()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "subprocess.run(['/bin/true'])",
        "os.execv('/bin/true', ['true'])",
        "os.system('true') == 0 or os.fork()",
    ],
)
def test_no_process_is_begun_and_no_program_run(attack: Attack, way: str) -> None:
    assert refused(attack(f"import os, subprocess\ndef attempt(): return {way}"))


def test_threads_are_bounded(attack: Attack) -> None:
    ran = attack(
        """
        import threading, time
        def attempt():
            for count in range(100_000):
                try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
                except Exception: return count < 1000
        """
    )
    assert result(ran) == {"value": True}


def test_memory_is_bounded(attack: Attack) -> None:
    assert result(attack("def attempt(): return len(bytearray(1 << 30))"))["error"].startswith("MemoryError")
    creeping = "def attempt():\n    kept = []\n    while True: kept.append(bytes(1 << 20))"
    assert "MemoryError" in result(attack(creeping))["error"]


@pytest.mark.parametrize(
    "loop",
    ["while True: pass", "re.match('(a|a)*$', 'a' * 60 + 'b')", "10 ** 10 ** 10", "time.sleep(1000)"],
)
def test_what_never_ends_is_ended(attack: Attack, loop: str) -> None:
    began = time.monotonic()
    assert attack(f"import re, time\ndef attempt():\n    {loop}", seconds=0.3)["ending"] is Ending.TIME
    assert time.monotonic() - began < 5


def test_time_of_the_processor_is_bounded_too(nursery: Nursery) -> None:
    """Even where its signal is caught."""
    limits = Limits(cpu_seconds=1)
    child = nursery.fork("execute", limits)
    code = "import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass"
    ran = _run_in(child, {"code": code, "calls": [{"eval": "1"}]}, 20.0, limits, "texts[0]", on_disk=False)
    child.close()
    assert ran["ending"] is Ending.TIME


def test_a_file_is_bounded(attack: Attack) -> None:
    ran = attack("def attempt():\n    with open('f', 'wb') as file: file.write(bytes(3 << 20))")
    assert "File too large" in result(ran)["error"]


@pytest.mark.parametrize("each", ["1 << 20", "0"])
def test_files_are_bounded_in_all(attack: Attack, nursery: Nursery, each: str) -> None:
    ran = attack(
        f"""
        import os, time
        def attempt():
            for number in range(1000):
                with open(f'f{{number}}', 'wb') as file: file.write(bytes({each}))
            time.sleep(5)
        """
    )
    if nursery.level is Level.STRONG:
        assert "No space left" in result(ran)["error"]
    else:
        assert ran["ending"] is Ending.DISK


def test_a_folder_that_cannot_be_looked_into_is_no_way_round(attack: Attack, nursery: Nursery) -> None:
    """Deeper than a path can tell, or changing all the time."""
    deep = "import os\ndef attempt():\n    for _ in range(60):\n        os.mkdir('d' * 250); os.chdir('d' * 250)\n"
    ran = attack(deep + "    import time; time.sleep(2)")
    assert ran["ending"] is (Ending.ANSWERED if nursery.level is Level.STRONG else Ending.DISK)
    changing = "import os, time\ndef attempt():\n    until = time.monotonic() + 0.5\n"
    changing += "    while time.monotonic() < until:\n        os.mkdir('d'); open('d/f', 'w').close()\n"
    changing += "        os.unlink('d/f'); os.rmdir('d')"
    assert attack(changing)["ending"] is Ending.ANSWERED
