"""Rewards through a whole server: queue, ledger, worker, sandbox."""

import threading
import time
from contextlib import suppress

import psutil
import pytest
from living import Server, wait_for

import openrl
from openrl.client import WorkFailed

pytestmark = pytest.mark.live

CITIES = {
    "schema": "CREATE TABLE city (name TEXT, people INTEGER)",
    "seed": {"city": [["Oslo", 700], ["Rome", 2800]]},
    "gold": "SELECT name FROM city WHERE people > 1000",
}
READY_SECONDS = 0.3  #: a grader that is killed sooner may not have begun, on a busy machine not even three in a row
RUNAWAY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def family(server: Server) -> set[psutil.Process]:
    """Of the reward worker: zygotes and children."""
    return set(psutil.Process(server.pid("reward worker")).children(recursive=True))


def test_sql_is_scored_with_its_parts(client: openrl.Client) -> None:
    texts = ["SELECT 'Rome'", "SELECT name FROM city", "DROP TABLE city", RUNAWAY]
    scores = client.score_in_parts("sql_execution", texts, [CITIES] * 4, {"seconds": 0.2})
    assert [score.value for score in scores] == [1.0, 0.0, 0.0, 0.0]
    assert [score.parts["rows"] for score in scores] == [1.0, 0.5, 0.0, 0.0]
    assert [score.info["ending"] for score in scores] == ["rows", "rows", "forbidden", "time"]


def test_code_sees_nothing_of_the_server(server: Server, client: openrl.Client) -> None:
    key = server.home / "local_key"
    tests = [
        {"eval": "[name for name in os.environ if 'OPENRL' in name or 'KEY' in name]", "expected": []},
        {"call": "read", "args": [str(key)], "expected": "PermissionError"},
        {"call": "read", "args": [f"/proc/{server.pid('reward worker')}/environ"], "expected": "PermissionError"},
        {"call": "connect", "args": [int(server.url.rpartition(":")[2])], "expected": "PermissionError"},
    ]
    code = """
import os, socket
def told(call):
    try: return str(call())
    except OSError as error: return type(error).__name__
def read(path): return told(lambda: open(path).read())
def connect(port): return told(lambda: socket.create_connection(("127.0.0.1", port)))
"""
    (score,) = client.score_in_parts("python_tests", [code], [{"tests": tests}])
    assert score.value == 1.0, score
    assert key.exists()


def test_a_wrong_context_is_named(client: openrl.Client) -> None:
    with pytest.raises(WorkFailed, match=r"contexts\[1\]\.gold: is missing"):
        client.score("sql_execution", ["SELECT 1"] * 2, [CITIES, {"schema": "CREATE TABLE t (x)"}])


def test_a_text_that_never_ends_has_its_score_and_so_have_the_others(client: openrl.Client) -> None:
    scores = client.score_in_parts("regex", ["a" * 60 + "b", "a"], params={"pattern": "^(a|a)*$"})
    assert [(score.value, score.info) for score in scores] == [(0.0, {"ending": "time"}), (1.0, {})]


def test_killed_graders_cost_a_client_nothing_but_time(server: Server, client: openrl.Client) -> None:
    """Those at work are the youngest of the family; the zygotes are older."""
    client.score("exact", ["a"], [{"answer": "a"}])
    zygotes = family(server) - {youngest(server)}
    youngest(server).kill()
    over, kills = threading.Event(), []
    first_seen: dict[psutil.Process, float] = {}

    def kill() -> None:
        while not over.wait(0.1):
            with suppress(psutil.NoSuchProcess):
                grader = youngest(server)
                seen = first_seen.setdefault(grader, time.monotonic())
                if grader not in zygotes and time.monotonic() - seen > READY_SECONDS:
                    grader.kill()
                    kills.append(grader)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for number in range(40):
            texts = ["a" * 15 + "b" * (at % 2) + f" {number}" for at in range(10)]
            assert client.score("regex", texts, params={"pattern": "^(a|a)* "}) == [1.0, 0.0] * 5
    finally:
        over.set()
        killer.join()
    assert kills


def youngest(server: Server) -> psutil.Process:
    return max(family(server), key=lambda process: process.create_time())


def test_a_killed_worker_takes_its_sandbox_along(server: Server, client: openrl.Client) -> None:
    client.score("exact", ["a"], [{"answer": "a"}])
    left = family(server)
    assert left
    server.kill("reward worker")
    wait_for("its children to be gone", lambda: not any(process.is_running() for process in left))
    assert client.score("exact", ["b"], [{"answer": "b"}]) == [1.0]
