from pathlib import Path

import pytest
from autoresearch.config import Place, Research, filled, load
from autoresearch.errors import ResearchError
from researching import SPACE, TOML, Folder

AGENT = '\n[agent]\ncommand = ["{python}", "agent.py", "{history}"]\n'


def read(folder: Path) -> Research:
    return load(Place.of(folder))


def test_a_whole_toml_is_understood(folder: Folder) -> None:
    research = read(folder())
    assert research.budget.attempts == 4 and research.metric.problems == "problems.json"
    assert research.space["lr"].default == 0.1 and research.agent is None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("attempts = 4", "attempts = 0", "budget.attempts: input should be greater than or equal to 1; it is how many"),
        ("attempts = 4", 'attempts = "4"', "budget.attempts: input should be a valid integer"),
        ("attempts = 4\n", "", "budget.attempts: field required; it is how many attempts"),
        ("attempts = 4", "atempts = 4", "budget.atempts: there is no such key; did you mean 'attempts'?"),
        ('mode = "max"', 'mode = "maximum"', "metric.mode: input should be 'max' or 'min'; it is \"max\" where more"),
        ("command =", "comand =", "comand: there is no such key; did you mean 'command'?"),
        ('["{python}", ', '"python ', "is no TOML"),
        ('"{seed}", ', "", "`command` must hand on the seed"),
        ('"{out}"', '"{output}"', "`command` has {output}, which is none of {python}, {research}, {folder}, {seed}"),
        ('"{out}"', '"{out"', "`command`: a single brace in '{out'"),
        ("seconds = 20", "seconds = 0", "budget.seconds: input should be greater than 0; it is how long"),
        ("seeds = 2", "seeds = 1.5", "budget.seeds: input should be a valid integer"),
        ("low = 0.01", "low = 2", "space.lr: `low` must be below `high`"),
        ("low = 0.01", "low = -1", "space.lr: `log` needs a `low` above 0"),
        ("default = 0.1", "default = 7", "space.lr: `default` must lie between `low` and `high`"),
        ("default = 0.1", "", "space.lr.default: field required; it is the value of the unchanged target"),
        ('type = "float"', 'type = "int"', "space.lr: `low`, `high` and `default` must be whole numbers"),
        ('type = "float"', 'type = "real"', "space.lr: input tag 'real'"),
        ('type = "float"', 'type = "choice"\nchoices = [1, 2]', "space.lr.low: there is no such key"),
    ],
)
def test_a_mistake_is_told_with_its_key_and_what_belongs_there(folder: Folder, old: str, new: str, told: str) -> None:
    assert old in TOML + SPACE
    place = folder(more="", toml=(TOML + SPACE).replace(old, new, 1))
    with pytest.raises(ResearchError) as caught:
        read(place)
    assert told in str(caught.value) and "autoresearch.toml" in str(caught.value)


def test_several_mistakes_are_told_at_once(folder: Folder) -> None:
    place = folder(toml=TOML.replace("attempts = 4", "attempts = 0").replace("seeds = 2", "seeds = 0"))
    with pytest.raises(ResearchError, match=r"(?s)budget\.attempts.*\n.*budget\.seeds"):
        read(place)


def test_proposals_come_from_a_space_or_from_an_agent(folder: Folder) -> None:
    with pytest.raises(ResearchError, match=r"either \[space\.OPTION\] tables to search over, or an \[agent\]"):
        read(folder(more=""))


@pytest.mark.parametrize("more", [SPACE + AGENT])
def test_not_from_both(folder: Folder, more: str) -> None:
    with pytest.raises(ResearchError, match="either"):
        read(folder(more=more))


def test_an_agent_needs_something_to_edit(folder: Folder) -> None:
    with pytest.raises(ResearchError, match="`editable` must name what the agent may change"):
        read(folder(more=AGENT, toml=TOML.replace('editable = ["settings.json"]', "")))


def test_an_agents_command_has_its_own_places(folder: Folder) -> None:
    with pytest.raises(ResearchError, match=r"`agent.command` has {seed}"):
        read(folder(more=AGENT.replace("{history}", "{seed}")))


def test_one_seed_without_problems_is_no_comparison(folder: Folder) -> None:
    toml = TOML.replace("seeds = 2", "seeds = 1").replace('problems = "problems.json"', "")
    with pytest.raises(ResearchError, match="one number is no comparison"):
        read(folder(toml=toml))


@pytest.mark.parametrize("file", ["autoresearch.toml", "program.md"])
def test_a_missing_file_is_named(folder: Folder, file: str) -> None:
    place = folder()
    (place / file).unlink()
    with pytest.raises(ResearchError, match=rf"{file} is missing"):
        read(place)


def test_a_folder_may_hold_several_researches_each_with_its_own_record(folder: Folder) -> None:
    place = folder()
    other = place / "autoresearch-small.toml"
    other.write_text((place / "autoresearch.toml").read_text().replace("attempts = 4", "attempts = 2"))
    assert load(Place.of(other)).budget.attempts == 2
    assert Place.of(place).record == place / "record" and Place.of(other).record == place / "record-small"
    with pytest.raises(ResearchError, match=r"is called autoresearch\.toml or autoresearch-NAME.toml"):
        Place.of(place / "other.toml")


def test_doubled_braces_are_braces() -> None:
    assert filled(["{seed}", "{{}}"], {"seed": 3}) == ["3", "{}"]


@pytest.mark.parametrize(
    "toml", sorted(Path(__file__).parents[3].glob("recipes/autoresearch/examples/*/*.toml")), ids=lambda path: path.name
)
def test_the_examples_are_understood(toml: Path) -> None:
    load(Place.of(toml))
