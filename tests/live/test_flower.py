"""Flower as `openrl serve` starts it, in a real browser: nothing without the login, everything with it."""

import re
from collections.abc import Callable

import httpx
import pytest
import tinker
from browser import page
from living import Server, wait_for
from loops import greedy, train

pytestmark = pytest.mark.live

QUEUES = (r"train\.tiny-\w+", r"sample\.tiny-\w+\.\d", r"reward\.\d")
TASKS = ("train.create_run", "train.forward_backward", "train.optim_step", "train.save_policy", "sample.sample")


@pytest.fixture(scope="module")
def address(server: Server) -> str:
    """Host and port of Flower."""
    found = re.match(r"http://(127\.0\.0\.1:\d+) \(user openrl, password: the API key\)", _told(server))
    assert found is not None, _told(server)
    return found[1]


def _told(server: Server) -> str:
    return str(server.status["parts"]["flower"]["address"])


@pytest.mark.parametrize("login", ["", "openrl:wrong@", "other:{key}@"])
@pytest.mark.parametrize("path", ["/", "/tasks", "/broker", "/worker/x", "/api/workers", "/api/tasks"])
def test_without_the_login_nothing_is_answered(server: Server, address: str, login: str, path: str) -> None:
    answer = httpx.get(f"http://{login.format(key=server.api_key)}{address}{path}")
    assert answer.status_code == 401
    assert answer.headers.get("www-authenticate", "").startswith("Basic") or path.startswith("/api"), "browsers ask"
    assert "device" not in answer.text


@pytest.mark.parametrize("login", ["", "openrl:wrong@"])
def test_without_the_login_a_browser_shows_no_page(address: str, login: str) -> None:
    shown = page(f"http://{login}{address}/workers")
    assert text(shown) in ("", "Access denied")


def test_with_the_login_a_browser_shows_workers_tasks_and_queues(
    server: Server, service: tinker.ServiceClient, address: str
) -> None:
    trainer = service.create_lora_training_client(base_model="tiny", rank=4).result()
    train(trainer, steps=1)
    greedy(trainer.save_weights_and_get_sampling_client().result())
    at = f"http://openrl:{server.api_key}@{address}"
    seen(f"{at}/workers?refresh=1", lambda rows: {"device@", "reward@"} <= {row[:7] for row in rows})
    seen(f"{at}/tasks", lambda rows: all(any(row.startswith(task) for row in rows) for task in TASKS))
    seen(f"{at}/broker", lambda rows: all(any(re.match(queue, row) for row in rows) for queue in QUEUES))


def seen(url: str, enough: Callable[[list[str]], bool]) -> None:
    """Waits until the rows of a page's table say it: workers and their tasks are told to Flower as they come."""
    last: list[str] = []

    def look() -> bool:
        last[:] = rows(page(url))
        return enough(last)

    try:
        wait_for(f"{url.rpartition('@')[2]} to show what there is", look, 60)
    except AssertionError as error:
        raise AssertionError(f"{error}; last it showed {last}") from None


def rows(shown: str) -> list[str]:
    return [text(row) for body in re.findall(r"<tbody.*?</tbody>", shown, re.DOTALL) for row in body.split("</tr>")]


def text(shown: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<script.*?</script>|<[^>]*>", "", shown, flags=re.DOTALL)).strip()
