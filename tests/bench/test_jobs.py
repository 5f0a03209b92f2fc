import argparse

import jobs
import pytest


def figures(**changed: float) -> dict[str, float]:
    return {"steps_per_s": 6.0, "step_p50_s": 0.5, "sampled_tokens": 512, "trained_tokens": 992, **changed}


def test_ratios_are_ours_by_theirs() -> None:
    ratios = jobs.compared(figures(), figures(steps_per_s=2.0, step_p50_s=1.5))
    assert ratios["steps_per_s"] == 3.0
    assert ratios["step_p50_s"] == pytest.approx(1 / 3)
    assert jobs.same_work(ratios)


@pytest.mark.parametrize("name", ["sampled_tokens", "trained_tokens"])
def test_sides_that_did_not_do_the_same_work_are_told(name: str) -> None:
    assert not jobs.same_work(jobs.compared(figures(), figures(**{name: figures()[name] / 2})))
    assert not jobs.same_work(jobs.compared(figures(**{name: figures()[name] / 2}), figures()))


def test_the_device_is_busy_with_what_it_did_between_two_announcements() -> None:
    use = jobs.device_use(jobs.Use(1.0, 4.0, 2.0, 3.0, 4), jobs.Use(11.0, 8.0, 4.0, 6.0, 8), 10.0, 12)
    expected = {"busy": 0.4, "busy_train": 0.2, "busy_sample": 0.3, "jobs_per_pack": 3.0}
    assert use == pytest.approx(expected)
    assert jobs.device_use(None, None, 10.0, 12) == {}


def test_the_load_is_told_what_the_bench_was_asked_for() -> None:
    parser = argparse.ArgumentParser()
    jobs.add_load(parser)
    args = parser.parse_args(["--steps", "2", "--prompts", "3", "--reward-latency", "0.25", "--unembed"])
    again = parser.parse_args(jobs.load_options(args))
    assert again == args
