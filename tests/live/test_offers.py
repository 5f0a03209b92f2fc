"""Reward functions that the operator switched on, through a whole server: a webhook, and source in the request."""

import hmac
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from living import Server

import openrl
from openrl.client import RequestRefused

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

KEY = b"a key of thirty-two bytes or so."
LAST = "def score(text, context, params): return float(text[-1:] > params['than'])"


class Handler(BaseHTTPRequestHandler):
    """Scores a text by its length, not at once, and none that is longer than 40."""

    posts: list[bool]  #: whether each was signed

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        said = self.headers["OpenRL-Timestamp"].encode() + b"." + body
        signed = hmac.compare_digest(hmac.new(KEY, said, sha256).hexdigest(), self.headers["OpenRL-Signature"])
        self.posts.append(signed and abs(time.time() - int(self.headers["OpenRL-Timestamp"])) < 60)
        self.send_response(200 if len(self.posts) > 1 else 503)
        self.end_headers()
        texts = [each["text"] for each in json.loads(body)["texts"]]
        scores = [{"value": len(text)} if len(text) <= 40 else {"error": "too long"} for text in texts]
        self.wfile.write(json.dumps({"scores": scores}).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def hook() -> Iterator[tuple[str, list[bool]]]:
    Handler.posts = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/score", Handler.posts
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, hook: tuple[str, list[bool]]) -> Iterator[openrl.Client]:
    home: Path = tmp_path_factory.mktemp("offers")
    (home / "webhook.key").write_bytes(KEY)
    settings = {
        "OPENRL_REWARD__SOURCE": "true",
        "OPENRL_REWARD__WEBHOOK_URLS": hook[0],
        "OPENRL_REWARD__WEBHOOK_KEY": f"file:{home / 'webhook.key'}",
    }
    server = Server.start(home, "--no-flower", **settings)
    with openrl.Client(base_url=server.url, api_key=server.api_key) as client:
        yield client
    server.stop()


def strong_is_lacking() -> bool:
    """Asked in a process of its own: the walls bound memory, and this one may have taken more than that already."""
    told = subprocess.run([sys.executable, "-m", "workers.reward.sandbox.walls"], capture_output=True, check=True)
    return bool(json.loads(told.stdout)["strong"])


def rollouts(client: openrl.Client, *rewards: Any) -> Any:
    sampling = {"max_tokens": 30, "temperature": 1.0, "seed": 5}
    return client.rollouts.create(["3 + 4 =", "5 + 6 ="], "tiny", group_size=6, sampling=sampling, reward=list(rewards))


def test_a_webhook_scores_what_it_can_and_the_rest_is_dropped_and_counted(
    client: openrl.Client, hook: tuple[str, list[bool]]
) -> None:
    url, posts = hook
    batch = rollouts(client, openrl.Reward("webhook", params={"url": f"{url}/length"}))
    groups = batch.results()
    scored = [rollout for group in groups for rollout in group.rollouts]
    dropped = [each for group in groups for each in group.dropped]
    assert len(scored) + len(dropped) == 12 and scored
    assert all(rollout.reward == len(rollout.text) <= 40 for rollout in scored)
    assert {each.error for each in dropped} <= {"GraderFailed"} and all("too long" in each.reason for each in dropped)
    assert batch.state().dropped_by_reason.get("GraderFailed", 0) == len(dropped)
    assert len(posts) == 3 and all(posts), "one for each group, and one that was tried again"
    with pytest.raises(RequestRefused, match=r"rewards\[0\]\.params\.url: http://127\.0\.0\.1:1/ is not among"):
        rollouts(client, openrl.Reward("webhook", params={"url": "http://127.0.0.1:1/"}))


def test_source_scores_where_walls_are_strong_and_is_refused_elsewhere(client: openrl.Client) -> None:
    reward = openrl.Reward("source", params={"source": LAST, "than": "m"})
    if strong_is_lacking():
        with pytest.raises(RequestRefused, match=r"rewards\[0\]\.name: 'source' is not offered here: no reward worker"):
            rollouts(client, reward)
        return
    groups = rollouts(client, reward).results()
    scored = [rollout for group in groups for rollout in group.rollouts]
    assert len(scored) == 12 and all(rollout.reward == float(rollout.text[-1:] > "m") for rollout in scored)
    assert client.score("source", ["a", "z"], params={"source": LAST, "than": "m"}) == [0.0, 1.0]
