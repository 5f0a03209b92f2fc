"""Options that several commands take, each with its help and the setting that it stands for."""

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
