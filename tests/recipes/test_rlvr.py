import asyncio
import json
import random
import tomllib
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).parents[2] / "recipes" / "rlvr"
FACTS: dict[str, str | int] = {"name": "Mia", "age": 71, "city": "Rome"}
GOOD = '{"name": "Mia", "age": 71, "city": "Rome"}'


@pytest.fixture(scope="module")
def recipe() -> Iterator[ModuleType]:
    """`run.py` as Python sees it when it is started by its path: its own folder is where it imports from."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import run

        yield run


@pytest.fixture(scope="module")
def task(recipe: ModuleType) -> ModuleType:
    import reward

    return reward


# --- the reward -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (GOOD, 1.0),
        ('\n{\n  "city": "Rome",\n  "age": 71,\n  "name": "Mia"\n}\n', 1.0),
        ('{"name": "Mia", "age": 17, "city": "Rome"}', 0.8),
        ('{"name": "Mia", "age": "71", "city": "Rome"}', 0.8),
        ('{"name": "Mia", "age": 71, "city": "Rome", "job": "chef"}', 0.8),
        ('{"name": "Mia", "city": "Rome"}', 0.6),
        (f"Here you are: {GOOD}", 0.8),
        (f"```json\n{GOOD}\n```", 0.8),
        (GOOD + GOOD, 0.8),
        ("{}", 0.2),
        ("Mia is 71.", 0.0),
        (GOOD[:-1], 0.0),
        ("{'name': 'Mia'}", 0.0),
        ('["Mia", 71, "Rome"]', 0.0),
        ('{"name": ' * 20_000, 0.0),
        ("", 0.0),
    ],
)
def test_each_check_is_worth_a_fifth(task: ModuleType, reply: str, value: float) -> None:
    assert task.reward(reply, FACTS) == pytest.approx(value)


@given(reply=st.text(alphabet='{}[]":,.0123456789eE-truefalsn \\', max_size=60))
def test_any_reply_has_a_reward_between_zero_and_one(task: ModuleType, reply: str) -> None:
    assert 0.0 <= task.reward(reply, FACTS) <= 1.0


def test_a_problem_states_its_facts_and_a_perfect_answer_earns_everything(task: ModuleType) -> None:
    rng = random.Random(5)
    for _ in range(200):
        problem = task.draw(rng)
        assert all(str(fact) in problem.sentence for fact in problem.facts.values())
        assert task.reward(json.dumps(problem.facts), problem.facts) == 1.0


def test_the_same_seed_draws_the_same_problems(task: ModuleType) -> None:
    one, other = random.Random(1), random.Random(1)
    assert [task.draw(one) for _ in range(20)] == [task.draw(other) for _ in range(20)]


def test_held_out_people_and_cities_never_appear_in_training(task: ModuleType) -> None:
    rng = random.Random(2)
    held_out = {*task.UNSEEN_NAMES, *task.UNSEEN_CITIES}
    for _ in range(200):
        assert not held_out & set(task.draw(rng).sentence.replace(",", " ").replace(".", " ").split())
        facts = task.draw(rng, unseen=True).facts
        assert {facts["name"], facts["city"]} <= held_out


# --- the loop ---------------------------------------------------------------------------------------------------------


def test_advantages_of_a_group_have_mean_zero_and_deviation_one(recipe: ModuleType) -> None:
    values = recipe.advantages([0.2, 0.2, 0.8, 1.0])
    assert np.mean(values) == pytest.approx(0.0)
    assert np.std(values) == pytest.approx(1.0)
    assert values[0] == values[1] < values[2] < values[3]


def test_a_group_that_agrees_teaches_nothing(recipe: ModuleType) -> None:
    assert recipe.advantages([0.6] * 8) == []


def test_a_datum_lines_up_each_reply_token_with_the_position_that_predicts_it(recipe: ModuleType) -> None:
    datum = recipe.datum(recipe.Rollout([5, 6, 7], [8, 9], [-0.5, -0.25], 1.0), 1.5)
    assert datum.model_input.to_ints() == [5, 6, 7, 8]
    inputs = {name: tensor.tolist() for name, tensor in datum.loss_fn_inputs.items()}
    assert inputs == {
        "target_tokens": [6, 7, 8, 9],
        "logprobs": [0.0, 0.0, -0.5, -0.25],
        "advantages": [0.0, 0.0, 1.5, 1.5],
    }


class CharTokenizer:
    """A token is a character's code; 0 closes a reply."""

    eos_token_id = 0

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> list[int]:
        return [ord(char) for char in messages[-1]["content"]]

    def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


class FakeService:
    """Stands where the service would: every second reply is perfect. Notes what was asked."""

    def __init__(self, **_: object) -> None:
        self.calls: list[str] = []

    def __enter__(self) -> "FakeService":
        return self

    def __exit__(self, *_: object) -> None: ...

    def answer(self, call: str, value: object = None) -> Awaitable[Any]:
        self.calls.append(call)

        async def arrive() -> object:
            await asyncio.sleep(0)
            return value

        return arrive()

    def create_lora_training_client(self, base_model: str, **_: object) -> Awaitable[Any]:
        return self.answer(f"create {base_model}", self)

    def get_tokenizer(self) -> CharTokenizer:
        return CharTokenizer()

    def save_weights_and_get_sampling_client(self) -> Awaitable[Any]:
        return self.answer("new sampler", self)

    def save_weights_for_sampler(self, name: str) -> Awaitable[Any]:
        return self.answer("save", SimpleNamespace(path=f"tinker://run/sampler_weights/{name}"))

    def forward_backward(self, data: list[Any], loss: str) -> Awaitable[Any]:
        return self.answer(f"forward_backward {loss} {len(data)}")

    def optim_step(self, adam: Any) -> Awaitable[Any]:
        return self.answer(f"optim_step {adam.learning_rate:g}")

    def sample(self, prompt: Any, num_samples: int, params: Any) -> Awaitable[Any]:
        from tinker import types

        replies = ["Hello." if index % 2 else self.perfect(prompt) for index in range(num_samples)]
        tokens = [[*map(ord, reply), 0] for reply in replies]
        sequences = [
            types.SampledSequence(
                stop_reason="stop", sequence_id=str(i), _tokens_list=row, _logprobs_list=[-0.1] * len(row)
            )
            for i, row in enumerate(tokens)
        ]
        return self.answer("sample", types.SampleResponse(sequences=sequences))

    def perfect(self, prompt: Any) -> str:
        import reward

        text = CharTokenizer().decode(prompt.to_ints())
        rng, unseen = random.Random(0), random.Random(0)
        problems = [reward.draw(rng) for _ in range(50)] + [reward.draw(unseen, unseen=True) for _ in range(50)]
        return next(json.dumps(problem.facts) for problem in problems if text.startswith(problem.sentence))


def test_gradients_and_update_are_both_sent_before_either_is_awaited(recipe: ModuleType) -> None:
    service = FakeService()
    group = [recipe.Rollout([1, 2], [3], [-1.0], score) for score in (0.0, 1.0)]
    quiet = [recipe.Rollout([1, 2], [3], [-1.0], 0.6)] * 2
    assert asyncio.run(recipe.learn(service, [group, quiet], 0.5)) == 2
    assert service.calls == ["forward_backward importance_sampling 2", "optim_step 0.5"]


def test_nothing_is_sent_when_no_group_has_anything_to_teach(recipe: ModuleType) -> None:
    service = FakeService()
    quiet = [recipe.Rollout([1, 2], [3], [-1.0], 0.6)] * 2
    assert asyncio.run(recipe.learn(service, [quiet], 0.5)) == 0
    assert service.calls == []


def test_a_run_leaves_its_metrics_its_curve_and_a_block_of_figures(
    recipe: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recipe.tinker, "ServiceClient", FakeService)
    monkeypatch.setattr(
        "sys.argv",
        ["run.py", "--steps", "2", "--groups", "2", "--group-size", "4", "--seed", "0", "--out", str(tmp_path)],
    )
    recipe.main(recipe.parse_options())
    lines = [json.loads(line) for line in (tmp_path / "seed-0.jsonl").read_text().splitlines()]
    assert [(line["step"], line["reward"], line["rollouts_used"]) for line in lines] == [(0, 0.5, 8), (1, 0.5, 8)]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    block = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines() if ": " in line)
    assert block["reward_first"] == block["reward_last"] == "0.500"
    assert block["unseen_first"] == block["unseen_last"] == "0.500"
    assert block["weights"] == "tinker://run/sampler_weights/rlvr-0"


# --- the same with rollouts on the service ----------------------------------------------------------------------------


def test_reward_workers_find_the_reward_by_its_entry_point(task: ModuleType) -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {"openrl.rewards": {"facts_to_json": "facts_to_json.reward:score"}}
    assert task.score(GOOD, {"facts": json.dumps(FACTS)}, {}) == 1.0
    assert task.score("{}", {"facts": json.dumps(FACTS)}, {}) == 0.2
    with pytest.raises(KeyError, match="facts"):
        task.score(GOOD, {}, {})


class FakeRollouts:
    """Every second rollout is perfect. Notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], dict[str, Any]]] = []

    async def create(self, prompts: list[Any], policy: object, **how: Any) -> Any:
        self.asked.append((prompts, how))
        return FakeBatch([self.group(index, how["group_size"]) for index in range(len(prompts))])

    def group(self, index: int, size: int) -> Any:
        from openrl.client import Group, Rollout, Timings

        told: dict[str, Any] = {"text": "", "stop_reason": "stop", "parts": {}, "info": {}}
        rollouts = tuple(
            Rollout(sample=sample, tokens=(7, 8), logprobs=(-0.1, -0.2), reward=float(sample % 2), **told)
            for sample in range(size)
        )
        timings = Timings(queued_seconds=0, sampled_seconds=0, scored_seconds=0)
        return Group(
            index=index, id="", prompt_tokens=(1, 2), rollouts=rollouts, dropped=(), policy="p", timings=timings
        )


class FakeBatch:
    def __init__(self, groups: list[Any]) -> None:
        self.groups = groups

    async def __aiter__(self) -> AsyncIterator[Any]:
        for group in self.groups:
            yield group

    async def results(self) -> list[Any]:
        return self.groups


def test_a_run_with_rollouts_of_the_service_asks_for_the_same_and_reports_the_same(
    recipe: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import run_rollouts

    rollouts, service = FakeRollouts(), FakeService()
    monkeypatch.setattr(recipe.tinker, "ServiceClient", lambda **_: service)
    monkeypatch.setattr(run_rollouts.openrl, "AsyncClient", lambda url: FakeClient(rollouts))
    monkeypatch.setattr(
        "sys.argv",
        [
            "run_rollouts.py",
            "--steps",
            "2",
            "--groups",
            "2",
            "--group-size",
            "4",
            "--seed",
            "0",
            "--out",
            str(tmp_path),
        ],
    )
    recipe.main(recipe.parse_options(), run_rollouts.train)
    lines = [json.loads(line) for line in (tmp_path / "seed-0.jsonl").read_text().splitlines()]
    assert [(line["step"], line["reward"], line["rollouts_used"]) for line in lines] == [(0, 0.5, 8), (1, 0.5, 8)]
    block = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines() if ": " in line)
    assert (block["reward_last"], block["unseen_last"]) == ("0.500", "0.500")
    assert service.calls.count("forward_backward importance_sampling 8") == 2
    unseen, first, *_ = rollouts.asked
    import reward

    expected = [reward.draw(rng) for rng in [random.Random(0)] for _ in range(2)]
    assert [prompt.content for prompt in first[0]] == [problem.messages() for problem in expected]
    assert [prompt.context for prompt in first[0]] == [{"facts": problem.facts} for problem in expected]
    assert first[1]["group_size"] == 4 and first[1]["reward"] == "facts_to_json" and len(unseen[0]) == 8


class FakeClient:
    def __init__(self, rollouts: FakeRollouts) -> None:
        self.rollouts = rollouts

    async def __aenter__(self) -> "FakeClient":
        return self

    async def __aexit__(self, *_: object) -> None: ...


class FakeScorer:
    """Scores like `score` does, or fails as it is told to."""

    def __init__(self, score: Any) -> None:
        self._score = score

    def __call__(self, *_: object, **__: object) -> "FakeScorer":
        return self

    def __enter__(self) -> "FakeScorer":
        return self

    def __exit__(self, *_: object) -> None: ...

    def score(self, name: str, texts: list[str], contexts: list[dict[str, Any]]) -> list[float]:
        assert name == "facts_to_json"
        return [self._score(text, context["facts"]) for text, context in zip(texts, contexts, strict=True)]


def test_the_reward_of_the_workers_is_held_against_the_one_here(
    recipe: ModuleType, task: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import run_rollouts

    def missing(*_: object) -> float:
        raise run_rollouts.WorkFailed("RewardUnknown", "reward: no reward function 'facts_to_json'", "user")

    monkeypatch.setattr(run_rollouts.openrl, "Client", FakeScorer(task.reward))
    run_rollouts.require_reward(None)
    for score, words in ((missing, "no reward function"), (lambda *_: 1.0, "another than .*reward.py")):
        monkeypatch.setattr(run_rollouts.openrl, "Client", FakeScorer(score))
        with pytest.raises(SystemExit, match=rf"(?s){words}.*pip install ./recipes/rlvr, then start"):
            run_rollouts.require_reward(None)


def test_help_says_what_each_variant_is(
    recipe: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import run_rollouts

    monkeypatch.setattr("sys.argv", ["run.py", "--help"])
    for about, words in ((recipe.__doc__, "through the Tinker API"), (run_rollouts.__doc__, "that the service makes")):
        with pytest.raises(SystemExit):
            recipe.parse_options(about)
        told = " ".join(capsys.readouterr().out.split())
        assert words in told and "replies to one prompt (default: 8)" in told
