"""The loop of text_to_sql against a service that stands still: what it sends, what it writes down, how it goes on."""

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

QUICK = ["--sft-steps", "3", "--sft-batch", "2", "--rl-steps", "3", "--groups", "2", "--group-size", "4"]
QUICK += ["--eval-problems", "4", "--save-every", "2", "--rewards", "local", "--seed", "5"]


class CharTokenizer:
    """A token is a character's code; ~ closes a reply."""

    eos_token_id = 0
    chat_template = "{}"

    def apply_chat_template(self, messages: list[dict[str, str]], *, tokenize: bool = True, **how: object) -> Any:
        text = "".join(f"[{message['content']}~\n" for message in messages) + "[" * bool(
            how.get("add_generation_prompt")
        )
        return self.encode(text) if tokenize else text

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(char) for char in text]

    def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


class Arriving:
    """What comes at the next turn of the loop, if it is waited for."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from asyncio.sleep(0).__await__()
        return self._value


class Interrupted(BaseException):
    """Somebody pressed Ctrl-C, or the machine went down."""


class FakeService:
    """Answers every second reply with the gold query. `until` calls are answered, then it all ends."""

    newest: "FakeService"

    def __init__(self, gold: Callable[[str], str], until: int = 10**6) -> None:
        self.calls: list[str] = []
        self.data: list[list[Any]] = []
        self.gold, self.until = gold, until
        FakeService.newest = self

    def __enter__(self) -> "FakeService":
        return self

    def __exit__(self, *_: object) -> None: ...

    def answer(self, call: str, value: object = None) -> Awaitable[Any]:
        self.calls.append(call)
        if len(self.calls) > self.until:
            raise Interrupted

        return Arriving(value)

    def create_lora_training_client(self, base_model: str, **_: object) -> Awaitable[Any]:
        return self.answer(f"create {base_model}", self)

    def create_training_client_from_state_with_optimizer(self, path: str) -> Awaitable[Any]:
        return self.answer(f"load {path}", self)

    def delete_checkpoint_from_tinker_path(self, path: str) -> Awaitable[Any]:
        return self.answer(f"delete {path}")

    def get_tokenizer(self) -> CharTokenizer:
        return CharTokenizer()

    def save_weights_and_get_sampling_client(self) -> Awaitable[Any]:
        return self.answer("new sampler", self)

    def save_weights_for_sampler(self, name: str) -> Awaitable[Any]:
        return self.answer("keep", SimpleNamespace(path=f"tinker://run/sampler_weights/{name}"))

    def save_state(self, name: str, ttl_seconds: int | None = None) -> Awaitable[Any]:
        return self.answer(f"save {name}", SimpleNamespace(path=f"tinker://run/weights/{name}"))

    def forward_backward(self, data: list[Any], loss: str) -> Awaitable[Any]:
        self.data.append(data)
        return self.answer(f"forward_backward {loss} {len(data)}", SimpleNamespace(metrics={"loss:sum": 10.0}))

    def optim_step(self, adam: Any) -> Awaitable[Any]:
        return self.answer(f"optim_step {adam.learning_rate:.4g}")

    def sample(self, prompt: Any, num_samples: int, params: Any) -> Awaitable[Any]:
        from tinker import types

        gold = self.gold(CharTokenizer().decode(prompt.to_ints()))
        rows = [[*map(ord, "no" if index % 2 else gold), ord("~")] for index in range(num_samples)]
        sequences = [
            types.SampledSequence(
                stop_reason="stop", sequence_id=str(i), _tokens_list=row, _logprobs_list=[-0.5] * len(row)
            )
            for i, row in enumerate(rows)
        ]
        assert params.stop == [ord("~")]
        return self.answer(f"sample {num_samples} at {params.temperature:g}", types.SampleResponse(sequences=sequences))


@pytest.fixture
def gold(text_to_sql: SimpleNamespace) -> Callable[[str], str]:
    """The gold query of a rendered prompt, of those that runs of these tests can show."""
    problems = text_to_sql.problems
    known = list(problems.problems(4, 0, unseen=True))
    for step in range(3):
        rng = random.Random(f"5 rl {step}")
        known += [problems.draw(rng) for _ in range(2)]
    by_words = {problem.messages()[1]["content"]: problem.gold for problem in known}
    return lambda prompt: next(query for words, query in by_words.items() if words in prompt)


@pytest.fixture
def start(
    text_to_sql: SimpleNamespace, gold: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., FakeService]:
    """Runs the recipe to its end, or until so many calls were answered. Curves are drawn where it says so."""
    draw_curves = text_to_sql.run.draw_curves

    def run(*options: str, until: int = 10**6, drawing: bool = False, gold: Callable[[str], str] = gold) -> FakeService:
        service = FakeService(gold, until)
        monkeypatch.setattr(text_to_sql.run, "draw_curves", draw_curves if drawing else lambda *_: None)
        monkeypatch.setattr(text_to_sql.run.tinker, "ServiceClient", lambda **_: service)
        monkeypatch.setattr(text_to_sql.run.tinker, "RestClient", lambda **_: service)
        monkeypatch.setattr("sys.argv", ["run.py", *QUICK, *options])
        text_to_sql.run.main()
        return service

    return run


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def steps(folder: Path) -> list[tuple[str, Any]]:
    return [(line["stage"], line.get("step", line.get("after"))) for line in metrics(folder)]


EVERY_STEP = [
    ("unseen", "before"),
    *(("sft", step) for step in range(3)),
    ("unseen", "sft"),
    *(("rl", step) for step in range(3)),
    ("unseen", "rl"),
]


def test_a_run_learns_by_example_then_by_reward_and_writes_it_down(
    start: Callable[..., FakeService], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = start("--out", str(tmp_path), drawing=True).calls
    assert steps(tmp_path) == EVERY_STEP
    assert [call for call in calls if call.startswith(("forward", "optim"))] == [
        *("forward_backward cross_entropy 2", "optim_step 0.001"),
        *("forward_backward cross_entropy 2", "optim_step 0.0006667"),
        *("forward_backward cross_entropy 2", "optim_step 0.0003333"),
        *("forward_backward importance_sampling 8", "optim_step 0.00015"),
        *("forward_backward importance_sampling 8", "optim_step 0.0001"),
        *("forward_backward importance_sampling 8", "optim_step 5e-05"),
    ]
    assert calls.count("sample 1 at 0") == 3 * 4 and calls.count("sample 4 at 1") == 3 * 2
    first = next(line for line in metrics(tmp_path) if line["stage"] == "rl")
    assert (first["match"], first["compiles"], first["reward"]) == (0.5, 0.5, pytest.approx(0.55))
    block = dict(re.findall(r"^(\w+): (.+)$", capsys.readouterr().out, re.MULTILINE))
    assert block["match_before"] == block["match_sft"] == block["match_rl"] == block["match_unseen"] == "1.000"
    assert block["weights"] == "tinker://run/sampler_weights/text-to-sql-full-5"
    assert block["state"] == "tinker://run/weights/rl-3"
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    unseen = json.loads((tmp_path / "unseen.json").read_text())
    assert {stage: [one["match"] for one in answers] for stage, answers in unseen.items()} == {
        stage: [1] * 4 for stage in ("before", "sft", "rl")
    }


def test_only_the_newest_state_of_a_stage_is_kept(start: Callable[..., FakeService], tmp_path: Path) -> None:
    calls = start("--out", str(tmp_path)).calls
    kept = [call for call in calls if call.startswith(("save", "delete"))]
    assert kept == [
        *("save sft-2", "save sft-3", "delete tinker://run/weights/sft-2"),
        *("save rl-2", "save rl-3", "delete tinker://run/weights/rl-2"),
    ]


def test_a_run_that_ended_anywhere_goes_on_where_it_was_and_doubles_nothing(
    start: Callable[..., FakeService], tmp_path: Path
) -> None:
    """It is ended before every third of the calls that it makes, and resumed."""
    whole = start("--out", str(tmp_path / "whole"))
    updates = [call for call in whole.calls if call.startswith("optim")]
    for until in range(1, len(whole.calls), 3):
        out = tmp_path / str(until)
        with pytest.raises(Interrupted):
            start("--out", str(out), until=until)
        ended = FakeService.newest
        state = json.loads((out / "state.json").read_text()) if (out / "state.json").exists() else {}
        resumed = start("--out", str(out), "--resume")
        assert steps(out) == EVERY_STEP, until
        weights = state.get("weights")
        assert f"delete {weights}" not in ended.calls
        assert resumed.calls[0] == (f"load {weights}" if weights else "create HuggingFaceTB/SmolLM2-135M-Instruct")
        done = {"": 0, "sft": 0, "rl": 3}[state.get("stage", "")] + state.get("step", 0)
        assert [call for call in resumed.calls if call.startswith("optim")] == updates[done:], until


def test_a_resumed_run_takes_the_problems_that_it_would_have_taken(
    start: Callable[..., FakeService], tmp_path: Path
) -> None:
    whole = start("--out", str(tmp_path / "whole"))
    with pytest.raises(Interrupted):
        start("--out", str(tmp_path / "ended"), until=20)
    rest = start("--out", str(tmp_path / "ended"), "--resume").data
    assert 0 < len(rest) < 6
    seen = [[datum.model_input.to_ints() for datum in data] for data in whole.data]
    assert [[datum.model_input.to_ints() for datum in data] for data in rest] == seen[-len(rest) :]


def test_updates_of_sft_are_sent_ahead(start: Callable[..., FakeService], tmp_path: Path) -> None:
    """The fourth is on its way before the first is told of."""
    with pytest.raises(Interrupted):
        start("--mode", "sft", "--steps", "9", "--save-every", "9", "--out", str(tmp_path), until=14)
    assert steps(tmp_path) == [("unseen", "before"), ("sft", 0)]


def test_the_weights_of_the_reward_count(start: Callable[..., FakeService], tmp_path: Path) -> None:
    weights = ["--weight-match", "0.5", "--weight-compiles", "0", "--weight-similarity", "0.25"]
    start("--mode", "rl", *weights, "--out", str(tmp_path))
    line = next(line for line in metrics(tmp_path) if line["stage"] == "rl")
    assert line["reward"] == pytest.approx(0.5 * line["match"] + 0.25 * line["similarity"])


def test_groups_that_agree_send_nothing(start: Callable[..., FakeService], tmp_path: Path) -> None:
    zero = ["--weight-match", "0", "--weight-compiles", "0"]
    calls = start("--mode", "rl", *zero, "--out", str(tmp_path)).calls
    assert not [call for call in calls if call.startswith(("forward", "optim"))]
    assert [line["rollouts_used"] for line in metrics(tmp_path) if line["stage"] == "rl"] == [0, 0, 0]


def test_rl_begins_from_a_checkpoint(start: Callable[..., FakeService], tmp_path: Path) -> None:
    calls = start("--mode", "rl", "--start", "tinker://old/weights/sft", "--steps", "2", "--out", str(tmp_path)).calls
    assert calls[0] == "load tinker://old/weights/sft"
    assert not [call for call in calls if call.startswith("delete tinker://old")]
    assert steps(tmp_path) == [("unseen", "before"), ("rl", 0), ("rl", 1), ("unseen", "rl")]


def test_problems_come_from_a_dataset_where_one_is_named(start: Callable[..., FakeService], tmp_path: Path) -> None:
    lines = [
        {
            "question": f"What is in {number}?",
            "context": f"CREATE TABLE t{number} (a INT); INSERT INTO t{number} VALUES ({number});",
            "answer": f"SELECT a FROM t{number}",
        }
        for number in range(1, 101)
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, lines)))
    data = ["--data", str(tmp_path / "own.jsonl"), "--eval-problems", "3", "--mode", "sft"]
    service = start(*data, "--out", str(tmp_path / "out"), gold=lambda _: "SELECT 1")
    learned = ["".join(map(chr, datum.model_input.to_ints())) for data in service.data for datum in data]
    assert len(learned) == 6 and all(re.search(r"t(\d+)\(a\)\nWhat is in \1\?~", text) for text in learned)
    unseen = json.loads((tmp_path / "out" / "unseen.json").read_text())["sft"]
    assert not [one["question"] for one in unseen if any(one["question"] in text for text in learned)]


def test_a_folder_with_a_run_is_not_written_over(start: Callable[..., FakeService], tmp_path: Path) -> None:
    start("--mode", "sft", "--out", str(tmp_path))
    with pytest.raises(SystemExit, match="holds a run: go on with it with --resume"):
        start("--mode", "sft", "--out", str(tmp_path))


def test_a_run_is_not_resumed_with_other_options(start: Callable[..., FakeService], tmp_path: Path) -> None:
    start("--mode", "sft", "--out", str(tmp_path))
    with pytest.raises(SystemExit, match=r"--sft-lr was 0\.001 when this run began, and is 0\.5 now"):
        start("--mode", "sft", "--out", str(tmp_path), "--sft-lr", "0.5", "--resume")


def test_a_finished_run_that_is_resumed_tells_its_figures_again(
    start: Callable[..., FakeService], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start("--out", str(tmp_path))
    before = capsys.readouterr().out
    calls = start("--out", str(tmp_path), "--resume").calls
    assert calls == ["load tinker://run/weights/rl-3", "keep"]
    after = capsys.readouterr().out
    assert [line for line in before.splitlines() if line.startswith(("match", "reward"))] == [
        line for line in after.splitlines() if line.startswith(("match", "reward"))
    ]


# --- its parts --------------------------------------------------------------------------------------------------------


def test_datums_line_up_each_reply_token_with_the_position_that_predicts_it(text_to_sql: SimpleNamespace) -> None:
    replies = text_to_sql.replies
    rollout = replies.Rollout([5, 6, 7], [8, 9], [-0.5, -0.25], "", text_to_sql.reward.Score(True, True, 1.0))
    datum = replies.reinforced(rollout, 1.5)
    assert datum.model_input.to_ints() == [5, 6, 7, 8]
    assert {name: tensor.tolist() for name, tensor in datum.loss_fn_inputs.items()} == {
        "target_tokens": [6, 7, 8, 9],
        "logprobs": [0.0, 0.0, -0.5, -0.25],
        "advantages": [0.0, 0.0, 1.5, 1.5],
    }


def test_an_example_ends_with_the_closing_token_and_weighs_its_query_alone(text_to_sql: SimpleNamespace) -> None:
    problem = text_to_sql.problems.problems(1, 3)[0]
    datum = text_to_sql.replies.supervised(text_to_sql.chat.Chat(CharTokenizer()), problem)
    targets, weights = (datum.loss_fn_inputs[name].tolist() for name in ("target_tokens", "weights"))
    learned = "".join(chr(token) for token, weight in zip(targets, weights, strict=True) if weight)
    assert learned == f"{problem.gold}~" and set(weights) == {0.0, 1.0}


def test_the_queue_is_asked_for_every_reply_with_its_problem(
    text_to_sql: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openrl
    from openrl.client.scores import Score

    asked: list[Any] = []

    class Client:
        def __init__(self, url: str | None) -> None:
            asked.append(url)

        def score_in_parts(self, *what: Any) -> list[Score]:
            asked.append(what)
            return [Score(1.0, {"parsed": 1.0}), Score(0.0, {"parsed": 1.0}), Score(0.0, {"parsed": 0.0})]

    monkeypatch.setattr(openrl, "Client", Client)
    problems = text_to_sql.problems.problems(3, 1)
    texts = [problems[0].gold, "SELECT 1", "no"]
    scores = asyncio.run(text_to_sql.scoring.scorer("queue", "http://here")(texts, problems))
    assert asked == ["http://here", ("sql_execution", texts, [problem.context() for problem in problems])]
    assert [(one.match, one.compiles) for one in scores] == [(True, True), (False, True), (False, False)]
    assert scores[0].similarity == 1.0 > scores[1].similarity > scores[2].similarity == 0.0


def test_advantages_are_against_the_group_and_nothing_where_it_agrees(text_to_sql: SimpleNamespace) -> None:
    assert text_to_sql.replies.advantages([1.0, 0.0, 0.0, 1.0]) == [0.5, -0.5, -0.5, 0.5]
    assert text_to_sql.replies.advantages([0.1] * 4) == []


def test_a_model_without_a_chat_template_reads_text_and_closes_with_its_end(text_to_sql: SimpleNamespace) -> None:
    tokenizer = CharTokenizer()
    tokenizer.chat_template = ""
    chat = text_to_sql.chat.Chat(tokenizer)
    read = chat.prompt([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])
    assert tokenizer.decode(read) == "a\nb\n"
    assert chat.reply("c") == [ord("c"), 0]
    assert (chat.text([ord("c"), 0]), chat.text([ord("c"), ord("d")]), chat.text([])) == ("c", "cd", "")


def test_figures_are_told_by_level_with_their_error(text_to_sql: SimpleNamespace) -> None:
    answers = [
        {"level": level, "match": match, "compiles": 1, "similarity": 0.5}
        for level, match in [(1, 1), (1, 1), (2, 1), (2, 0)]
    ]
    figures = text_to_sql.replies.summed_up(answers)
    assert (figures["match"], figures["match_level_1"], figures["match_level_2"]) == (0.75, 1.0, 0.5)
    assert figures["match_error"] == pytest.approx((0.75 * 0.25 / 4) ** 0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--steps", "3"], "--steps is of the one stage of --mode sft or rl"),
        (["--group-size", "1"], "--group-size must be 2 or more"),
        (["--save-every", "0"], "must be 1 or more"),
        (["--preset", "gpt-2"], "invalid choice"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    text_to_sql: SimpleNamespace, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        text_to_sql.options.parse_options("", options)
    assert words in capsys.readouterr().err


def test_a_preset_gives_way_to_what_is_given_besides(text_to_sql: SimpleNamespace) -> None:
    options = text_to_sql.options.parse_options("", ["--preset", "qwen3-4b", "--sft-lr", "0.5"])
    assert (options.base_model, options.rank, options.sft_lr) == ("Qwen/Qwen3-4B-Instruct-2507", 32, 0.5)


def test_help_teaches(text_to_sql: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        text_to_sql.options.parse_options(text_to_sql.run.__doc__, ["--help"])
    told = capsys.readouterr().out
    assert "Teaches a model to write SQL" in told and "--resume" in told and "examples:" in told


def test_several_runs_make_one_picture(
    text_to_sql: SimpleNamespace, start: Callable[..., FakeService], tmp_path: Path
) -> None:
    start("--mode", "sft", "--out", str(tmp_path / "a"))
    start("--out", str(tmp_path / "b"))
    text_to_sql.plots.draw_curves([tmp_path / "a", tmp_path / "b"], tmp_path / "both.png")
    assert (tmp_path / "both.png").stat().st_size > 1000
