from html.parser import HTMLParser
from pathlib import Path

import pytest
from autoresearch import report
from autoresearch.config import Place, load
from autoresearch.store import Attempt, Confirmation, Options, Record, Run, write_text
from autoresearch.verdicts import Comparison
from researching import Folder, research_folder

EVIL = "</pre><script>alert(1)</script><img src=http://evil.example/x onerror=alert(2)>"
COMPARISON = Comparison("crossed t-test", 0.2, 0.01, 2, 4)


class Page(HTMLParser):
    """What a browser would make of it: its elements, and what these would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "style")]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.said += data


def runs(metric: float) -> list[Run]:
    return [Run(seed=seed, metric=metric + seed / 100, curve=[0.1, 0.2, metric], seconds=3) for seed in range(2)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Of five attempts: one kept, one kept that descends from it, one dropped, one crashed, one at work."""
    tmp_path = tmp_path_factory.mktemp("report")
    place = Place.of(research_folder(tmp_path / "research"))
    record = Record(tmp_path / "record")
    evil: Options = {"lr": 0.25, "loss": EVIL}
    for attempt in (
        Attempt(number=0, began=0, runs=runs(0.5), state="ended", outcome="kept", reason="the unchanged target"),
        Attempt(number=1, parent=0, options=evil, began=0, runs=runs(0.7), state="ended", outcome="kept", reason=EVIL),
        Attempt(number=2, parent=0, began=0, runs=runs(0.4), state="ended", outcome="dropped", comparison=COMPARISON),
        Attempt(number=3, parent=1, edits=[EVIL], began=0, runs=runs(0.8), state="ended", outcome="kept"),
        Attempt(number=4, parent=3, began=0, state="ended", outcome="crashed", reason="its time was up"),
        Attempt(number=5, parent=3, began=0),
    ):
        record.save(attempt)
    write_text(record.of(3) / "diff.patch", f"@@ -1 +1 @@\n-old\n+{EVIL}\n")
    write_text(record.of(3) / "agent.log", EVIL)
    (record.of(3) / "seed-0.log").write_bytes(b"\x00\xff\x1b[31m" + EVIL.encode())
    record.save_confirmation(Confirmation(winner=3, runs={0: runs(0.5), 3: runs(0.7)}, comparison=COMPARISON))
    path = report.write(load(place), place.folder, record)
    assert path == record.report
    assert (record.folder / "picture.png").read_bytes().startswith(b"\x89PNG")
    return Page(path.read_text())


def test_strangers_text_is_shown_and_never_run(page: Page) -> None:
    assert "script" not in page.tags and page.said.count(EVIL) >= 6
    assert "\x00" not in page.said and "\x1b" not in page.said and "[31m" not in page.said


def test_nothing_is_fetched(page: Page) -> None:
    assert page.fetched and all(one.startswith(("data:image/svg+xml;base64,", "#")) for one in page.fetched)


def test_the_tree_tells_who_descends_from_whom(page: Page) -> None:
    assert [one for one in page.fetched if one.startswith("#")] == [
        f"#attempt-{number}" for number in (0, 1, 3, 4, 5, 2)
    ]
    assert page.tags.count("ul") == 4  # the tree, and the children of 0, 1 and 3


def test_outcomes_differences_and_the_confirmation_are_told(page: Page) -> None:
    words = " ".join(page.said.split())
    for told in (
        "kept",
        "dropped",
        "crashed",
        "begun",
        "its time was up",
        "-old",
        "confirmed_p",
        "0.01",
        "Make it better.",
    ):
        assert told in words
    assert page.tags.count("img") == 3


def test_a_record_of_nothing_but_the_first_attempt_has_a_page(folder: Folder, tmp_path: Path) -> None:
    place = Place.of(folder())
    record = Record(tmp_path / "record")
    record.save(Attempt(number=0, began=0))
    assert "begun" in report.page(load(place), place.folder, record)
