"""Graders die under load; every text is scored once and rightly."""

import os
import random
import signal
import threading
import time
from contextlib import suppress

import psutil
import pytest
from scoring import held

from openrl.domain.ids import OpId
from openrl.domain.op import Bell, Op
from openrl.ledger.memory import MemoryLedger
from openrl.ledger.port import Limits
from workers import desk
from workers.keeper import Keeper
from workers.reward.sandbox.nursery import Nursery
from workers.reward.work import RewardWork

OPS, TEXTS, KILLS, THREADS = 100, 10, 100, 2


class Killer(threading.Thread):
    """Kills a scoring child that is at work, again and again."""

    def __init__(self, kills: int) -> None:
        super().__init__(daemon=True)
        self.left = kills
        self._zygotes = set(psutil.Process().children(recursive=True))

    def run(self) -> None:
        while self.left:
            time.sleep(0.01)
            graders = set(psutil.Process().children(recursive=True)) - self._zygotes
            for grader in random.sample(sorted(graders, key=lambda one: one.pid), k=min(1, len(graders))):
                with suppress(psutil.NoSuchProcess, ProcessLookupError):
                    if grader.status() != psutil.STATUS_ZOMBIE:
                        os.kill(grader.pid, signal.SIGKILL)
                        self.left -= 1


def op_of(reward: str, name: str, right: list[bool]) -> Op:
    """Texts that take some milliseconds where they are wrong, or a process each."""
    if reward == "regex":
        texts = ["a" * 16 + "b" * (not one) + f" {name} {at}" for at, one in enumerate(right)]
        return held(reward, texts, op=name, pattern="^(a|a)* ").op
    tests = [{"call": "double", "args": [4], "expected": 8}]
    texts = [f"def double(x): return x + {'x' if one else '1'}" for one in right]
    return held(reward, texts, [{"tests": tests}] * len(texts), op=name).op


@pytest.mark.live
@pytest.mark.parametrize("reward", ["regex", "python_tests"])
def test_killed_graders_leave_no_zero_and_no_gap(any_nursery: Nursery, reward: str) -> None:
    """A thousand scores, a hundred kills: right texts and wrong ones, told apart however often a grader died."""
    rung: list[OpId] = []
    ledger = MemoryLedger(lambda bell: rung.append(bell.op), limits=Limits(max_attempts=10_000))
    work, keeper = RewardWork(any_nursery, max_attempts=10_000), Keeper(ledger)
    luck, wanted = random.Random(7), {}

    def append(number: int) -> None:
        right = [luck.random() < 0.5 for _ in range(TEXTS)]
        op = op_of(reward, f"op-{number}", right)
        wanted[op.id] = tuple(map(float, right))
        ledger.append(op, Bell(op=op.id, queue="reward.0", task="reward.score_texts", summary=""))

    def serve() -> None:
        while rung:
            with suppress(IndexError):
                desk.serve(ledger, keeper, work, rung.pop(0))

    killer = Killer(KILLS)
    killer.start()
    while killer.left or len(wanted) < OPS:
        for _ in range(THREADS * 5):
            append(len(wanted))
        threads = [threading.Thread(target=serve) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    killer.join()
    work.close()
    records = {op_id: ledger.read(op_id) for op_id in wanted}
    assert {op_id: record.result.values for op_id, record in records.items()} == wanted
    assert sum(record.attempts for record in records.values()) > len(wanted) + KILLS / 2
