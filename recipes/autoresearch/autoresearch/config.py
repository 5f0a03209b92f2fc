"""A research folder's `autoresearch.toml`: what it may say, and what is told of it where it says something else."""

import difflib
import string
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from autoresearch.errors import ResearchError

FILE = "autoresearch.toml"  #: or another `autoresearch-NAME.toml` beside it
PATTERN = "autoresearch*.toml"
PROGRAM = "program.md"
#: What may stand in braces in each command, and what it becomes.
TARGET_PLACES = {
    "python": "the Python that runs the harness",
    "research": "the research folder",
    "folder": "the attempt's own checkout of it, where the command runs",
    "seed": "the seed of this run",
    "problems": "0 while searching, 1 while confirming: the seed of the held-out problems",
    "out": "a folder of this run's own for what it writes",
}
AGENT_PLACES = {
    "python": TARGET_PLACES["python"],
    "research": TARGET_PLACES["research"],
    "folder": "the attempt's own checkout, where the agent works",
    "program": f"the path of {PROGRAM}",
    "history": "the path of a JSON file that tells all attempts so far",
    "attempt": "the attempt's number",
}

Count = Annotated[int, Field(ge=1, strict=True)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Metric(Part):
    name: str = Field(min_length=1, description="the line `NAME: value` that the command prints at its end")
    mode: Literal["max", "min"] = Field(description='"max" where more is better, "min" where less is')
    problems: str | None = Field(
        None, description="a JSON file in {out} with the score of each held-out problem, by its name or place"
    )
    problems_at: str | None = Field(None, description="the key of that file under which the scores lie, if not on top")
    problem_score: str | None = Field(None, description="the key of each problem's score, where problems are objects")
    curve: str | None = Field(None, description="a JSONL file in {out} with a line for each step, for the report")
    curve_key: str = Field("reward", description="the number in each of its lines to draw")


class Budget(Part):
    attempts: Count = Field(description="how many attempts there are besides the unchanged target")
    at_once: Count = Field(1, description="how many of them run at the same time")
    seconds: float = Field(gt=0, description="how long the runs of one attempt may take, all seeds together")
    seeds: Count = Field(2, description="runs of each attempt while searching")
    confirm_seeds: int = Field(
        5, ge=0, strict=True, description="runs of the winner and of the unchanged target with fresh seeds; 0 for none"
    )


class Number(Part):
    type: Literal["float", "int"]
    low: float = Field(description="the smallest value")
    high: float = Field(description="the largest value")
    log: bool = Field(False, description="whether to search by factors; then `low` is above 0")
    step: float | None = Field(None, gt=0, description="the distance between values; not together with `log`")
    default: float = Field(description="the value of the unchanged target, between `low` and `high`")

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if not self.low < self.high:
            raise ValueError("`low` must be below `high`")
        if not self.low <= self.default <= self.high:
            raise ValueError("`default` must lie between `low` and `high`")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError("`log` needs a `low` above 0 and no `step`")
        if self.type == "int" and not all(float(end).is_integer() for end in (self.low, self.high, self.default)):
            raise ValueError('`low`, `high` and `default` must be whole numbers where `type` is "int"')
        return self


class Choice(Part):
    type: Literal["choice"]
    choices: list[str | int | float | bool] = Field(min_length=2, description="the values, at least two")
    default: str | int | float | bool = Field(description="the value of the unchanged target, one of `choices`")

    @model_validator(mode="after")
    def _is_among_them(self) -> Self:
        if self.default not in self.choices:
            raise ValueError("`default` must be one of `choices`")
        return self


Setting = Annotated[Number | Choice, Field(discriminator="type")]


class Agent(Part):
    command: list[str] = Field(min_length=1, description="the agent's program and its arguments, a list")
    seconds: float = Field(600, gt=0, description="how long the agent may take for one attempt")
    environment: list[str] = Field(
        default_factory=list, description="variables that the agent sees: names, or NAME=value"
    )


class Research(Part):
    """All of `autoresearch.toml`."""

    command: list[str] = Field(min_length=1, description="the target's program and its arguments, a list")
    environment: list[str] = Field(
        default_factory=list,
        description="variables that the command sees: names, or NAME=value with {record} for the record's folder",
    )
    editable: list[str] = Field(default_factory=list, description="the files that an agent may change, as patterns")
    scratch: list[str] = Field(
        ["__pycache__/*", "*/__pycache__/*", "runs/*"],
        description="files that an agent may leave behind and nobody uses, as patterns",
    )
    metric: Metric
    budget: Budget
    keep_below: float = Field(0.05, gt=0, lt=1, description="an attempt is kept where the test's p is below this")
    space: dict[str, Setting] = Field(default_factory=dict, description="options of the command to search over")
    agent: Agent | None = Field(None, description="the coding agent that edits the target, instead of [space]")

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        if bool(self.space) == bool(self.agent):
            raise ValueError("give either [space.OPTION] tables to search over, or an [agent]")
        if self.agent and not self.editable:
            raise ValueError('`editable` must name what the agent may change, as in editable = ["target.py"]')
        if self.budget.seeds < 2 and self.metric.problems is None:
            raise ValueError(
                "`budget.seeds` must be at least 2, or `metric.problems` given: one number is no comparison"
            )
        _check_places("command", self.command, TARGET_PLACES)
        if not any("{seed}" in word for word in self.command):
            raise ValueError('`command` must hand on the seed, as in ["…", "--seed", "{seed}"]')
        if self.agent:
            _check_places("agent.command", self.agent.command, AGENT_PLACES)
        return self


@dataclass(frozen=True, slots=True)
class Place:
    """Where a research is told: its folder, and which toml of it."""

    folder: Path
    toml: Path

    @classmethod
    def of(cls, path: Path) -> "Place":
        """Of a research folder, or of one of several tomls in it. Raises ResearchError where it is neither."""
        path = path.absolute()
        if path.suffix == ".toml":
            if not path.match(PATTERN):
                raise ResearchError(f"{path.name}: a research's toml is called {FILE} or autoresearch-NAME.toml")
            return cls(path.parent, path)
        return cls(path, path / FILE)

    @property
    def record(self) -> Path:
        """Where its record lies unless another place is asked for."""
        return self.folder / self.toml.stem.replace("autoresearch", "record", 1)


TABLES: dict[str, type[BaseModel]] = {"metric": Metric, "budget": Budget, "agent": Agent}


def load(place: Place) -> Research:
    """What the toml says. Raises ResearchError, which names each key that is wrong and how to put it right."""
    path = place.toml
    if not path.is_file():
        raise ResearchError(f"{path} is missing: a research folder holds {FILE}, {PROGRAM} and the target")
    if not (place.folder / PROGRAM).is_file():
        raise ResearchError(f"{place.folder / PROGRAM} is missing: write there what an attempt may do, and what counts")
    try:
        return Research.model_validate(tomllib.loads(path.read_text()))
    except tomllib.TOMLDecodeError as error:
        raise ResearchError(f"{path} is no TOML: {error}") from None
    except ValidationError as error:
        told = "\n".join(f"  {_told(wrong)}" for wrong in error.errors())
        raise ResearchError(f"{path}:\n{told}") from None


def filled(command: list[str], places: dict[str, object]) -> list[str]:
    """The command with what stands in braces put in."""
    return [word.format_map(places) for word in command]


def _check_places(key: str, command: list[str], places: dict[str, str]) -> None:
    known = ", ".join(f"{{{name}}}" for name in places)
    for word in command:
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(word) if name is not None]
        except ValueError:
            raise ValueError(f"`{key}`: a single brace in {word!r}; write {{{{ or }}}} for the sign itself") from None
        for name in names:
            if name not in places:
                raise ValueError(f"`{key}` has {{{name}}}, which is none of {known}; write {{{{ }}}} for braces")


def _told(wrong: Any) -> str:
    """One mistake as a line: the key, what is wrong, what belongs there."""
    place = [step for step in wrong["loc"] if step not in ("float", "int", "choice")]
    key = ".".join(str(step) for step in place)
    if not key:
        return str(wrong["msg"]).removeprefix("Value error, ")
    if wrong["type"] == "extra_forbidden":
        return f"{key}: there is no such key{_near(place)}"
    field = _field(place)
    belongs = f"; it is {field.description}" if field is not None and field.description else ""
    message = str(wrong["msg"]).removeprefix("Value error, ")
    return f"{key}: {message[0].lower()}{message[1:]}{belongs}"


def _model(place: list[Any]) -> type[BaseModel] | None:
    """The model that holds the last step of the place."""
    match place:
        case [_]:
            return Research
        case ["metric" | "budget" | "agent" as table, _, *_]:
            return TABLES[table]
        case ["space", _, "choices" | "default" as key, *_]:
            return Choice if key == "choices" else Number
        case ["space", _, _, *_]:
            return Number
    return Research


def _field(place: list[Any]) -> Any:
    names = [step for step in place if isinstance(step, str)]
    model = _model(place)
    return model.model_fields.get(names[-1]) if model and names else None


def _near(place: list[Any]) -> str:
    model = _model(place)
    known = list(model.model_fields) if model else []
    close = difflib.get_close_matches(str(place[-1]), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
