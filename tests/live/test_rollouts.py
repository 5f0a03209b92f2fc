"""Batches of rollouts over plain HTTP: called off, while the broker dies, beside another tenant's flood."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from living import Server

from openrl.catalog.repository import Catalog

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

SAMPLES = 4
PATTERN = r"[aeiou].*[0-9]"

Event = dict[str, Any]


class Reader:
    """A client that comes again with the id of the last event it saw, whatever happens to its connection."""

    def __init__(self, url: str, api_key: str) -> None:
        self.http = httpx.Client(base_url=f"{url}/openrl/v1", headers={"x-api-key": api_key}, timeout=30)
        self.seen = ""

    def post(self, path: str, **body: object) -> Event:
        while True:
            try:
                response = self.http.post(path, json=body)
            except httpx.TransportError:
                time.sleep(0.2)
                continue
            assert response.status_code == 200, response.text
            return dict(response.json())

    def events(self, batch: str) -> Iterator[Event]:
        while True:
            try:
                yield from self._attach(batch)
                return
            except httpx.TransportError:
                time.sleep(0.2)

    def _attach(self, batch: str) -> Iterator[Event]:
        headers = {"last-event-id": self.seen} if self.seen else {}
        with self.http.stream("GET", f"rollouts/{batch}/events", headers=headers) as response:
            assert response.status_code == 200, response.read()
            event: dict[str, str] = {}
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if name:
                    event[name] = value
                elif "event" in event:
                    self.seen = event["id"]
                    yield {"event": event["event"], **json.loads(event["data"])}
                    if event["event"] == "end":
                        return
                    event = {}
        raise httpx.ReadError("the stream ended early")


def request(key: str, prompts: int, samples: int = SAMPLES, max_tokens: int = 300) -> dict[str, Any]:
    said = [{"messages": [{"role": "user", "content": f"{n} and {n}?"}], "id": f"p{n}"} for n in range(prompts)]
    return {
        "key": key,
        "policy": {"base_model": "tiny"},
        "prompts": [prompt | {"context": {"answer": number % 10}} for number, prompt in enumerate(said)],
        "group_size": samples,
        "sampling": {"max_tokens": max_tokens, "temperature": 1.0, "seed": 7},
        "rewards": [{"name": "regex", "weight": 2.0, "params": {"pattern": PATTERN}}, {"name": "numeric"}],
    }


def test_a_batch_is_called_off_while_it_runs(server: Server) -> None:
    reader = Reader(server.url, server.api_key)
    batch = reader.post("rollouts", **request("a-key-to-call-off", prompts=200))["batch_id"]
    next(iter(reader.events(batch)))
    state = reader.post(f"rollouts/{batch}/cancel")
    assert state["status"] == "cancelled" and state["rollouts"]["dropped"] > 0
    *_, end = reader.events(batch)
    assert end["status"] == "cancelled" and end["rollouts"]["done"] + end["rollouts"]["dropped"] == 200 * SAMPLES


def test_a_batch_survives_its_broker(server: Server) -> None:
    reader = Reader(server.url, server.api_key)
    batch = reader.post("rollouts", **request("a-key-and-a-broker", prompts=12))["batch_id"]
    groups = []
    for event in reader.events(batch):
        groups += [event["index"]] if event["event"] == "group" else []
        if len(groups) == 2:
            server.kill("broker")
    assert sorted(groups) == list(range(12)) and event["status"] == "done"


def test_another_tenants_flood_does_not_keep_a_single_rollout_waiting(server: Server) -> None:
    catalog = Catalog(f"sqlite:///{server.home / 'catalog.db'}")
    _, key = catalog.create_key("floods")
    catalog.close()
    flooding, single = Reader(server.url, key), Reader(server.url, server.api_key)
    flood = flooding.post("rollouts", **request("a-key-of-a-flood", prompts=600, max_tokens=60))["batch_id"]
    next(iter(flooding.events(flood)))
    before = flooding.http.get(f"rollouts/{flood}").json()["groups_done"]
    batch = single.post("rollouts", **request("a-key-of-a-single", prompts=1, samples=1, max_tokens=60))["batch_id"]
    *_, end = single.events(batch)
    state = flooding.http.get(f"rollouts/{flood}").json()
    flooding.post(f"rollouts/{flood}/cancel")
    assert end["status"] == "done" and state["status"] == "running"
    assert state["groups_done"] - before < 300, "half of the flood passed it"
