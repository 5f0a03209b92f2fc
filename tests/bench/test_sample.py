import argparse

import pytest
import sample
from asks import Ask
from sides import Served


def options(**changed: object) -> argparse.Namespace:
    return argparse.Namespace(**{"asks": 64, "serial_asks": 8, "probes": 4, "vllm_python": None, **changed})


def served(seconds: float, tokens: int = 100, waits: list[float] | None = None) -> Served:
    return Served(seconds=seconds, tokens=tokens, waits=waits or [], cpu_seconds=2 * seconds)


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    ours, theirs = [served(1.0), served(10.0), served(2.0)], [served(2.0), served(30.0), served(2.0)]
    assert sample.ratio(ours, theirs) == pytest.approx(2.0)


def test_both_sides_of_a_ratio_serve_the_same_asks() -> None:
    turns = sample.plan(options(vllm_python="python"), "smollm2-135m", 512, 30.0)
    wanted = {name: {(ask.prompt, ask.max_tokens) for ask in turn.asks(2)} for name, turn in turns.items()}
    for ours, theirs in (pair for name, pair in sample.RATIOS.items() if name != "serial_ratio"):
        assert wanted[ours] == wanted[theirs]
    assert wanted["serial"] < wanted["over_time"] and len(wanted["serial"]) == 8
    assert turns["in_flight"].in_flight == turns["vllm"].in_flight == 32


def test_requests_that_come_over_time_come_within_a_third_and_static_ones_at_once() -> None:
    turns = sample.plan(options(), "tiny", 512, 30.0)
    assert 8.0 < turns["over_time"].asks(1)[-1].at <= 10.0
    assert {ask.at for ask in turns["static"].asks(1)} == {0.0}
    assert len(turns["serial"].asks(1)) == 64


def test_vllm_is_left_out_where_it_is_not_given_or_cannot_serve_the_model() -> None:
    for args, model in ((options(), "smollm2-135m"), (options(vllm_python="python"), "tiny")):
        turns = sample.plan(args, model, 512, 30.0)
        assert not {"vllm", "in_flight", "worker", "bare_adapters"} & turns.keys()
        assert {turn.side for turn in turns.values()} == {"openrl", "static", "batching", "serial"}


def test_turns_can_be_chosen_and_figures_are_of_those_alone() -> None:
    turns = sample.chosen(sample.plan(options(vllm_python="python"), "smollm2-135m", 512, 0), ["worker", "bare"])
    assert (turns["bare"].in_flight, turns["bare"].tells) == (32, True)
    figures = sample.figures(turns, {"worker": [served(1.0)], "bare": [served(2.0)]})
    assert figures["vllm_worker_ratio"] == pytest.approx(2.0)
    assert figures["bare_tokens_per_cpu_s"] == pytest.approx(25.0)
    assert not [name for name in figures if name.startswith(("ttft", "static", "vllm_cpu"))]
    with pytest.raises(SystemExit, match="nonsense"):
        sample.chosen(turns, ["nonsense"])


def test_the_wait_for_a_first_token_is_that_of_the_probes() -> None:
    turn = sample.Turn("openrl", lambda round_: [Ask((1,), 5), Ask((round_,), 1), Ask((2,), 1)])
    rounds = [served(1.0, waits=[9.0, 0.1, 0.2]), served(1.0, waits=[9.0, 0.3, 0.4])]
    assert sample.waited(turn, rounds) == pytest.approx([100, 200, 300, 400])
