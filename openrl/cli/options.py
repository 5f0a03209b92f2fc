"""Options of commands, each with its help and the setting that it stands for: what several take, then `serve` alone."""

from pathlib import Path
from typing import Annotated, Literal

import typer

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Everything that outlives a restart. [OPENRL_DATA_DIR, ~/.openrl]")
]
BaseModel = Annotated[
    str | None,
    typer.Option("--base-model", help="A name from `openrl models list`, a hub id, or a folder. [OPENRL_BASE_MODEL]"),
]
Device = Annotated[
    Literal["auto", "cpu", "mps", "cuda"] | None,
    typer.Option(help="What workers compute on. [OPENRL_WORKER__DEVICE, auto]"),
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16"] | None,
    typer.Option(help="Of the base weights. [OPENRL_WORKER__DTYPE, auto]"),
]
LogFormat = Annotated[
    Literal["text", "json"] | None, typer.Option(help="Lines for people, or JSON. [OPENRL_LOG__FORMAT, text]")
]
Host = Annotated[str | None, typer.Option(help="Address to listen on. [OPENRL_GATEWAY__HOST, 127.0.0.1]")]
Port = Annotated[int | None, typer.Option(help="0 picks a free one. [OPENRL_GATEWAY__PORT, 8000]")]

Program = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND", help="Run this against the server, then stop and exit as it did."),
]
BaseModels = Annotated[
    list[str] | None,
    typer.Option(
        "--base-model",
        help="A name from `openrl models list`, a hub id, or a folder; repeatable: each has workers of its own."
        " [OPENRL_BASE_MODEL]",
    ),
]
Aliases = Annotated[
    list[str] | None,
    typer.Option(
        "--alias",
        help="Another name of the base model for clients, NAME=MODEL where there are several; repeatable."
        " [OPENRL_MODEL_ALIASES]",
    ),
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", help="The local tenant's key, tml-… [OPENRL_API_KEY, else one is made]")
]
Separate = Annotated[bool, typer.Option("--separate", help="A train and a sample worker, not one for both.")]
DeviceWorkers = Annotated[int | None, typer.Option(min=1, help="Workers of each base model that train and sample. [1]")]
#: Of either kind.
ApartWorkers = Annotated[int | None, typer.Option(min=1, help="The same, with --separate. [1]")]
NoFlower = Annotated[bool, typer.Option("--no-flower", help="Do not start Flower.")]
FlowerPort = Annotated[int | None, typer.Option(help="0 picks a free one. [OPENRL_FLOWER_PORT, 5555]")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Follow the logs of all components.")]
