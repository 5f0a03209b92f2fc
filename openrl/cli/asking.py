"""Commands that ask a service that is up: what stands in its queues, and what became of an op."""

from typing import Annotated

import typer

from openrl.cli import given
from openrl.cli.options import DataDir

ops_app = typer.Typer(help="Single operations.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="For programs.")]
Url = Annotated[
    str | None,
    typer.Option("--url", help="Of the service. [OPENRL_BASE_URL, TINKER_BASE_URL, else that of `openrl serve` here]"),
]


def queues(
    everyone: Annotated[
        bool, typer.Option("--all", help="Of all tenants; on the machine of `openrl serve`, or with OPENRL_REDIS_URL.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """What stands in the queues: in all, and of your own."""
    from openrl.cli import queues as told

    settings = given.settings(data_dir=data_dir)
    found = told.of_all_tenants(settings) if everyone else told.of_one_tenant(settings, url)
    told.show(found, as_json)


def try_out(
    base_model: Annotated[str, typer.Argument(help="One that the service serves.")],
    seconds: Annotated[float, typer.Option(min=1, help="How long it may take, the start of workers included.")] = 1800,
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Run a tiny step of reinforcement learning through a service: a run, rollouts, a gradient, an optimizer step."""
    from openrl.cli import trial

    trial.run(given.settings(data_dir=data_dir), url, base_model, seconds)


def workers(as_json: Json = False, url: Url = None, data_dir: DataDir = None) -> None:
    """Who is at work, and how busy."""
    from openrl.cli import workers as told

    told.show(told.asked(given.settings(data_dir=data_dir), url), as_json)


@ops_app.command("show")
def ops_show(op_id: str, as_json: Json = False, url: Url = None, data_dir: DataDir = None) -> None:
    """What an operation has been through: queued, claimed, settled."""
    from openrl.cli import ops

    ops.show(ops.asked(given.settings(data_dir=data_dir), url, op_id), as_json)
