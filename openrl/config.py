"""Settings, read once at a process's start from `OPENRL_*` (nested with `__`) and passed on as values.

Defaults run on a laptop with nothing set. A variable that names no setting is refused: a typo must not pass in silence.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from openrl.domain.errors import SettingInvalid
from openrl.domain.webhook import target_of

#: Read by the command line, the client and the workers; not part of Settings.
OTHER_VARIABLES = frozenset({"OPENRL_BASE_URL", "OPENRL_API_KEY", "OPENRL_WORKER_ID"})


def _names(value: object) -> object:
    """A comma-separated variable as a list."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]


def _aliases(pairs: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError for one that is not NAME=MODEL."""
    for pair in pairs:
        name, _, model = pair.partition("=")
        if not (name and model):
            raise ValueError(f"{pair!r} does not say of which model; write NAME=MODEL")
    return pairs


class Gateway(BaseModel, extra="forbid", frozen=True):
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is reached from other machines too."""
    port: int = Field(8000, ge=0, le=65535)
    """0 picks a free port."""
    max_body_mb: int = Field(128, ge=1)
    """Largest request body, before and after decompression."""
    poll_seconds: float = Field(25.0, gt=0, le=40)
    """How long a poll for a result is held open; the SDK gives up after 45."""
    awaited_models: Names = ()
    """Base models, comma-separated and named as their workers name them, that requests wait for while no worker serves
    them; requests for others are refused. `openrl serve` adds its own."""
    awaited_aliases: Annotated[Names, AfterValidator(_aliases)] = ()
    """Other names of these, NAME=MODEL, comma-separated: what their workers have as OPENRL_MODEL_ALIASES."""


class Train(BaseModel, extra="forbid", frozen=True):
    pack_tokens: int = Field(16_384, ge=1)
    """Tokens, padding included, that one forward/backward may hold, in each process of a group; more are taken in
    several."""
    memory_gb: float = Field(0.0, ge=0)
    """Device memory that a forward/backward may take beside the weights, in GB (10^9 bytes); longer batches are cut to
    fit, and a datum that cannot fit is refused. 0 looks before each how much is free."""
    snapshot_seconds: float = Field(5.0, gt=0)
    """Age of a run's oldest change at which its state is written to the depot; what came since is done again after a
    crash."""
    idle_seconds: float = Field(900.0, gt=0)
    """A run that nobody used for so long leaves the worker's memory; its next operation brings it back."""
    group_seconds: float = Field(120.0, gt=0)
    """A process of a group that is silent, or keeps the others waiting, for so long is lost, and the group ends."""
    device_memory_mb: float = Field(0.0, ge=0)
    """Memory for the weights, moments and gradients of runs where the device computes; those used last stay. 0 takes a
    quarter of what is free once the base model is loaded."""
    host_memory_mb: float = Field(0.0, ge=0)
    """Main memory for runs that found no room on a CUDA device, before they go to the depot; 0 takes half of what is
    free. Elsewhere the device's memory is main memory and this is not used."""
    max_lora_rank: int = Field(256, ge=1)
    """The largest rank that clients may ask for."""
    full_runs: bool = False
    """Whether runs may train all weights of the base model: one at a time on each train worker, which takes 20 bytes of
    memory for each weight. The same for all workers of a model, none of which may be a group of processes."""


def _json_object(text: str) -> str:
    """Raises ValueError unless it is a JSON object, or nothing."""
    if text and not isinstance(json.loads(text), dict):
        raise ValueError("it must be a JSON object")
    return text


class Vllm(BaseModel, extra="forbid", frozen=True):
    """Of the vLLM sample engine alone."""

    memory_share: float = Field(0.9, gt=0, le=1)
    """Part of a GPU's memory that vLLM takes, weights and key/value cache together (`gpu_memory_utilization`)."""
    tensor_parallel: int = Field(1, ge=1)
    """GPUs over which a worker cuts the model (`tensor_parallel_size`)."""
    max_model_len: int = Field(0, ge=0)
    """Tokens of prompt and answer together; 0 is the model's context. Less leaves room for more requests at once."""
    cache_gb: float = Field(0.0, ge=0)
    """Key/value cache in GB (10^9 bytes); 0 takes what `memory_share` leaves on a GPU, and on the CPU a share of memory
    that vLLM chooses."""
    max_loras: int = Field(0, ge=0)
    """Adapters in one step; requests for more of them wait. 0 takes up to 8, in a twentieth of the device's memory."""
    max_cpu_loras: int = Field(0, ge=0)
    """Adapters in main memory, and in the worker's folder; others come from the depot when asked for. 0 takes up to 64,
    in a tenth of what memory is free."""
    extra: Annotated[str, AfterValidator(_json_object)] = ""
    """Further arguments of vLLM's `AsyncEngineArgs`, as a JSON object."""


class Sample(BaseModel, extra="forbid", frozen=True):
    engine: Literal["auto", "torch", "vllm"] = "auto"
    """What draws samples. `auto` is vLLM where it is installed, the device is CUDA and the worker samples only; else
    torch, which alone shares its weights with training and samples full runs."""
    lanes: int = Field(4, ge=1, le=64)
    """Sub-queues of the sample queue, and of the reward queue too; the same for gateway and workers."""
    max_rows: int = Field(128, ge=1)
    """Sequences decoded together."""
    cache_tokens: int = Field(0, ge=0)
    """Key/value cache in tokens over all rows; 0 sizes it from free memory."""
    prefill_tokens: int = Field(0, ge=0)
    """Prompt tokens computed between two decode steps: fewer keep samples flowing while long prompts come in, more
    compute prompts faster; 0 takes 512 on a CPU and 2048 elsewhere."""
    full_copies: int = Field(2, ge=1)
    """Policy versions with all weights that a worker keeps at once, each a model of its own, if its memory allows."""
    policy_cache_mb: int = Field(4096, ge=0)
    """Policy versions that a sample worker keeps on its disk, in `policy-cache` in the data directory, so that it
    fetches each once; workers of one machine share them. 0 keeps none, as does a depot in a folder of the same disk."""
    vllm: Vllm = Vllm()


class Worker(BaseModel, extra="forbid", frozen=True):
    device: Literal["auto", "cpu", "mps", "cuda"] = "auto"
    """`auto` takes CUDA, else MPS, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the base weights; adapters and optimizer are float32 always."""
    tf32: bool = False
    """On CUDA, multiply float32 matrices (adapters always, base weights where their dtype is float32) in TF32: faster,
    with 10 bits of mantissa in place of 23."""
    threads: int = Field(0, ge=0)
    """CPU threads for tensor work; 0 takes the cores this process may use."""
    drain_seconds: float = Field(10.0, ge=0)
    """How long a worker that is told to stop goes on with the samples and scores that it has begun; it hands back what
    is unfinished then, and at once what it has not begun."""
    events: bool = True
    """Tell of every operation's life on the broker, for Flower; costs a device worker about a tenth of its time where
    operations are tiny. `openrl serve --no-flower` sets it to false."""
    appetite: int = Field(64, ge=1)
    """Operations of one tenant that a device worker works on at once; more wait in line. A worker that samples has as
    many slots again, so that other tenants' samples find one free."""
    reward_processes: int = Field(2, ge=1)
    """Reward operations that one reward worker scores at once, each in a process of its own."""
    sandbox: Literal["auto", "strong", "kernel", "limits"] = "auto"
    """How model output is kept from doing harm while it is scored (docs/howto/rewards.md): `auto` takes the strongest
    level that the machine gives; with any other a reward worker refuses to start where it cannot be had."""


class Metrics(BaseModel, extra="forbid", frozen=True):
    """What the gateway and each worker tell their operators (docs/howto/observability.md)."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is reached from other machines too. Nothing here asks for a key."""
    port: int = Field(0, ge=0, le=65535)
    """For /metrics, /healthz and /readyz; 0 is off. `openrl serve` gives its processes this port and the next ones."""


class Log(BaseModel, extra="forbid", frozen=True):
    format: Literal["text", "json"] = "text"
    """Of the gateway's and the workers' logs: lines for people, or one JSON object a line."""


def _url_beginnings(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Raises ValueError for one that is none."""
    for url in urls:
        if target_of(url).query:
            raise ValueError(f"{url} has a query; what comes after the path is the request's")
    return urls


class Reward(BaseModel, extra="forbid", frozen=True):
    """What clients may bring along to score with; the same for gateway and reward workers (docs/howto/rewards.md)."""

    source: bool = False
    """Whether requests may hold the source of a reward function (`source`). It runs in the sandbox, where that is at
    level `strong` only."""
    webhook_urls: Annotated[Names, AfterValidator(_url_beginnings)] = ()
    """Beginnings of the https:// URLs, comma-separated, that the reward `webhook` may post to; http:// for addresses of
    the machine itself (127.0.0.1, localhost, [::1]). Without any it is off."""
    webhook_key: Annotated[str, Field(pattern=r"^((file:|env:).+)?$")] = ""
    """Where the key lies that signs what is posted, 16 bytes or more: `file:/PATH` or `env:NAME`."""
    webhook_private: bool = False
    """Whether hosts of these URLs may have addresses of private networks."""
    webhook_seconds: float = Field(10.0, gt=0, le=120)
    """How long an answer may take; each post is tried three times."""


CENTURY = 100 * 365 * 86_400.0  #: in seconds; dates that lie farther back cannot be told


class Retention(BaseModel, extra="forbid", frozen=True):
    finished_seconds: float = Field(600.0, ge=0, le=CENTURY)
    """How long after a session finished its runs and unnamed sampler weights are kept; checkpoints stay."""
    silent_seconds: float = Field(86_400.0, gt=0, le=CENTURY)
    """The same for a session whose client fell silent without a word."""
    unnamed_per_run: int = Field(16, ge=1)
    """Sampler weights without a name that a run keeps while its session goes on: the newest so many, and all that were
    used within `unused_seconds`. Older ones are removed; a named checkpoint never is."""
    unused_seconds: float = Field(300.0, ge=0, le=86_400)
    """How long nobody must have sampled from weights without a name before they may be removed."""


class LedgerRules(BaseModel, extra="forbid", frozen=True):
    """The same for gateway and workers."""

    hold_seconds: float = Field(10.0, gt=0)
    """A worker that has not been heard of for so long has lost its operations."""
    max_attempts: int = Field(3, ge=1)
    """How often an operation is begun before it is given up."""
    gap_seconds: float = Field(120.0, gt=0)
    """How long a run waits for a missing turn."""
    ring_again_seconds: float = Field(5.0, gt=0)
    """An operation that could run and that no worker took for so long is announced again."""
    keep_seconds: float = Field(86_400.0, gt=0)
    """How long a result can be read."""
    max_waiting_per_tenant: int = Field(20_000, ge=1)
    """Unsettled operations of one tenant; further requests are told to come again."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="OPENRL_", env_nested_delimiter="__", frozen=True, extra="forbid")

    data_dir: Path = Path("~/.openrl")
    """Everything that must outlive a restart: broker files, catalog, depot, models."""
    redis_url: str | None = None
    """None starts an embedded server."""
    catalog_url: str | None = None
    """SQLAlchemy URL; None is SQLite in the data directory."""
    depot_url: str | None = None
    """fsspec URL (`file://`, `s3://`, `gs://`); None is a folder in the data directory."""
    base_model: str = "smollm2-135m"
    """Hub id, local folder, or a name from `openrl models list`."""
    model_aliases: Names = ()
    """Other names, comma-separated, under which clients may ask for the base model."""
    flower_port: int = Field(5555, ge=0, le=65535)
    """0 picks a free port."""
    gateway: Gateway = Gateway()
    train: Train = Train()
    sample: Sample = Sample()
    worker: Worker = Worker()
    reward: Reward = Reward()
    ledger: LedgerRules = LedgerRules()
    retention: Retention = Retention()
    metrics: Metrics = Metrics()
    log: Log = Log()

    @property
    def home(self) -> Path:
        return self.data_dir.expanduser()

    @property
    def catalog_at(self) -> str:
        return self.catalog_url or f"sqlite:///{self.home / 'catalog.db'}"

    @property
    def depot_at(self) -> str:
        return self.depot_url or f"file://{self.home / 'depot'}"


def load(**overrides: object) -> Settings:
    """The settings of this process. Raises SettingInvalid naming the variable."""
    known = {f"OPENRL_{name.upper()}" for name in Settings.model_fields} | OTHER_VARIABLES
    for variable in os.environ:
        if variable.startswith("OPENRL_") and variable.split("__")[0] not in known:
            raise SettingInvalid(variable, f"no such setting; known are {', '.join(sorted(known))}")
    try:
        return Settings(**overrides)  # type: ignore[arg-type]  # pydantic checks them
    except ValidationError as error:
        first = error.errors()[0]
        name = "OPENRL_" + "__".join(str(part).upper() for part in first["loc"])
        raise SettingInvalid(name, f"{first['msg']} (got {first.get('input')!r})") from error
