"""The arithmetic of the recipe's timelines, and what it makes of the service's records."""

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).parents[2] / "recipes" / "three_jobs"
TICKS = st.integers(0, 40)
SPANS = st.lists(st.tuples(TICKS, TICKS))


def load(name: str) -> ModuleType:
    """By its file: modules of other recipes may have the same name."""
    spec = importlib.util.spec_from_file_location(f"three_jobs_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


timeline = load("timeline")
reward = load("reward")


@pytest.fixture
def picture() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "timeline", timeline)
        yield load("picture")


# --- spans ------------------------------------------------------------------------------------------------------------


def ticks(spans: list[tuple[int, int]]) -> set[int]:
    """The reference: the whole seconds that spans cover."""
    return {tick for began, ended in spans for tick in range(began, ended)}


@given(SPANS)
def test_a_union_covers_the_same_time_in_spans_that_are_apart_and_in_order(spans: list[tuple[int, int]]) -> None:
    joined = timeline.union(spans)
    assert ticks(joined) == ticks(spans)
    assert all(before[1] < after[0] for before, after in pairwise(joined))
    assert timeline.seconds(spans) == len(ticks(spans))


@given(SPANS, TICKS, st.integers(1, 40))
def test_a_windows_gaps_and_what_lies_within_it_make_it_whole(
    spans: list[tuple[int, int]], began: int, length: int
) -> None:
    window = (began, began + length)
    inside, idle = timeline.within(spans, window), timeline.gaps(spans, window)
    assert ticks(inside) == ticks(spans) & ticks([window])
    assert ticks(idle) == ticks([window]) - ticks(spans)
    assert all(ended > began for began, ended in [*inside, *idle])


# --- figures ----------------------------------------------------------------------------------------------------------

Worker = dict[str, Any]


def stretch(doing: str, began: float, ended: float, *runs: str, others: int = 0) -> dict[str, Any]:
    return {"doing": doing, "began": began, "ended": ended, "runs": list(runs), "samplers": [], "others": others}


def worker(*stretches: dict[str, Any], name: str = "w", began: float = 0.0, ended: float = 20.0) -> Worker:
    return {"worker": name, "models": [], "began": began, "ended": ended, "left_out": 0, "stretches": list(stretches)}


def record(*answers: list[Worker]) -> Any:
    """That was fetched from a service that gives these answers, one after the other."""
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"now": 7.0, "workers": left.pop(0)})

    async def fetched() -> Any:
        async with httpx.AsyncClient(base_url="http://x", transport=httpx.MockTransport(answer)) as client:
            found = timeline.Record(client)
            while left:
                await found.fetch()
            return found

    return asyncio.run(fetched())


def test_what_runs_at_once_is_busy_once_and_only_inside_the_window() -> None:
    found = timeline.figures(
        record(
            [
                worker(
                    stretch("sample", 0.0, 4.0, "a"),
                    stretch("pack", 3.0, 6.0, "a", "b", others=1),
                    stretch("pack", 7.0, 8.0, others=2),
                    stretch("update", 8.0, 8.5, "b"),
                    stretch("call", 11.5, 14.0),
                )
            ]
        ),
        (2.0, 12.0),
    )
    assert found == {
        "busy": pytest.approx(0.6),  # 2 to 6, 7 to 8.5, 11.5 to 12
        "busy_training": pytest.approx(0.45),
        "busy_sampling": pytest.approx(0.2),
        "longest_gap_seconds": pytest.approx(3.0),
        "packs": 1,
        "runs_per_pack": 3.0,
        "workers": 1,
    }


def test_shares_are_means_over_the_workers_that_worked_for_us() -> None:
    found = timeline.figures(
        record(
            [
                worker(stretch("pack", 0.0, 10.0, "a"), name="trains"),
                worker(stretch("sample", 0.0, 5.0, "a"), name="samples"),
                worker(stretch("sample", 0.0, 10.0, others=1), name="of others"),
            ]
        ),
        (0.0, 10.0),
    )
    assert (found["busy"], found["workers"]) == (0.75, 2)


def test_what_ended_before_the_beginning_is_not_asked_for() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["since"])
        return httpx.Response(200, json={"now": 7.0, "workers": [worker(began=5.0, ended=9.0)]})

    async def fetched() -> None:
        async with httpx.AsyncClient(base_url="http://x", transport=httpx.MockTransport(answer)) as client:
            found = timeline.Record(client)
            assert await found.begin() == 7.0
            await found.until(9.0)
            await found.fetch()

    asyncio.run(fetched())
    assert asked[1:] == ["7.0", "9.0"]


def test_a_worker_that_tells_later_is_waited_for() -> None:
    answers = [[], [worker(ended=3.0)], [worker(stretch("pack", 4.0, 5.0, "a"), began=3.0, ended=9.0)]]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"now": 7.0, "workers": answers.pop(0)})

    async def told() -> timeline.Record:
        async with httpx.AsyncClient(base_url="http://x", transport=httpx.MockTransport(answer)) as client:
            found = timeline.Record(client)
            await found.until(7.0)
            return found

    assert asyncio.run(told()).ours() == {"w"} and not answers


def test_a_worker_that_ended_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [[worker(stretch("pack", 1.0, 2.0, "a"), ended=3.0)], [], []]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"now": 7.0, "workers": answers.pop(0)})

    async def told() -> None:
        async with httpx.AsyncClient(base_url="http://x", transport=httpx.MockTransport(answer)) as client:
            await timeline.Record(client).until(7.0)

    monkeypatch.setattr(timeline, "GONE_SECONDS", 0.0)
    with pytest.raises(timeline.RecordIncomplete, match="did it end"):
        asyncio.run(told())


def test_answers_that_overlap_are_one_record() -> None:
    pack, update = stretch("pack", 1.0, 2.0, "a"), stretch("update", 2.0, 3.0, "a")
    whole = record(
        [worker(pack, ended=2.5)], [worker(pack, update, began=1.5, ended=4.0)], [worker(began=4.0, ended=9.0)]
    )
    assert [each.doing for each in sorted(whole.stretches, key=lambda each: each.began)] == ["pack", "update"]
    assert whole.known == {"w": (0.0, 9.0)}


def test_time_that_was_not_told_is_no_idle_time() -> None:
    with pytest.raises(timeline.RecordIncomplete, match=r"told nothing of 3\.0 s"):
        record([worker(ended=2.0)], [worker(began=5.0)])
    for told in (worker(stretch("pack", 1.0, 2.0, "a"), began=1.0), worker(stretch("pack", 1.0, 2.0, "a"), ended=9.0)):
        with pytest.raises(timeline.RecordIncomplete):
            timeline.figures(record([told]), (0.0, 10.0))
    with pytest.raises(timeline.RecordIncomplete, match="no worker"):
        timeline.figures(record([worker(stretch("pack", 1.0, 2.0, others=1))]), (0.0, 10.0))


# --- picture and reward -----------------------------------------------------------------------------------------------


def test_a_pack_is_cut_into_the_colours_of_its_jobs(picture: ModuleType) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    pack = timeline.Stretch("w", "pack", 101.0, 103.0, ("b", "a"), 1)
    picture.draw_stretch(axes, picture.Phase(("a", "b"), (100.0, 110.0), [pack], 0.2), pack, 0)
    layers = [bars.get_paths()[0].get_extents() for bars in axes.collections]
    assert [(layer.x0, layer.x1) for layer in layers] == [(1.0, 3.0)] * 3
    assert [layer.height for layer in layers] == pytest.approx([picture.HEIGHT / 3] * 3)
    colours = [bars.get_facecolor()[0].tolist() for bars in axes.collections]
    assert len({tuple(colour) for colour in colours}) == 3


def test_a_picture_has_a_row_for_each_phase(picture: ModuleType, tmp_path: Path) -> None:
    pack = timeline.Stretch("w", "pack", 101.0, 103.0, ("a",), 0)
    phases = [picture.Phase(("a", "b", "c")[:jobs], (100.0, 110.0), [pack], jobs / 4) for jobs in (1, 2, 3)]
    picture.draw_picture(phases, 10.0, tmp_path / "it.png")
    assert (tmp_path / "it.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0.0), ("one two three four five six seven eight", 1.0), ("one two\nthree", 0.25), ("a " * 30, 0.0)],
)
def test_eight_words_are_best(text: str, value: float) -> None:
    assert reward.reward(text) == value


def test_the_queued_reward_takes_the_time_that_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setitem(sys.modules, "slow_brevity", SimpleNamespace(reward=reward))
    queued = load("queued")
    monkeypatch.setattr(queued.time, "sleep", slept.append)
    assert queued.score("one two", {}, {"seconds": "0.25"}) == 0.25 and slept == [0.25]


@pytest.mark.parametrize("wrong", ["--jobs=0", "--steps=0", "--group-size=0", "--reward-seconds=nan"])
def test_options_out_of_range_are_told(
    wrong: str, picture: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, module in (("picture", picture), ("reward", reward)):
        monkeypatch.setitem(sys.modules, name, module)
    run = load("run")
    monkeypatch.setattr(sys, "argv", ["run.py", "--base-url", "http://127.0.0.1:1", wrong])
    with pytest.raises(SystemExit):
        run.parse_options()
    assert "please" in capsys.readouterr().err
