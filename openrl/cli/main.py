"""The `openrl` command. Thin: every command imports what it needs when it runs, so that `--help` is quick."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from openrl.cli import asking, endings, given
from openrl.cli.options import (
    Aliases,
    ApartWorkers,
    ApiKey,
    BaseModel,
    BaseModels,
    DataDir,
    Device,
    DeviceWorkers,
    Dtype,
    FlowerPort,
    Host,
    LogFormat,
    NoFlower,
    Port,
    Program,
    Separate,
    Verbose,
)

app = typer.Typer(
    name="openrl",
    help="A self-hosted post-training service for language models that speaks the Tinker API.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
keys_app = typer.Typer(help="API keys of tenants.", no_args_is_help=True)
models_app = typer.Typer(help="Base models that have a name of ours.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")
app.add_typer(models_app, name="models")
app.add_typer(asking.ops_app, name="ops")
app.command()(asking.queues)
app.command("try")(asking.try_out)
app.command()(asking.workers)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(metadata.version("openrl"))
        raise typer.Exit


@app.callback()
def openrl(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """What goes before any command; `main` itself looks for --debug."""


@app.command()
def serve(
    program: Program = None,
    base_model: BaseModels = None,
    alias: Aliases = None,
    port: Port = None,
    host: Host = None,
    api_key: ApiKey = None,
    data_dir: DataDir = None,
    separate: Separate = False,
    device_workers: DeviceWorkers = None,
    train_workers: ApartWorkers = None,
    sample_workers: ApartWorkers = None,
    no_flower: NoFlower = False,
    flower_port: FlowerPort = None,
    device: Device = None,
    dtype: Dtype = None,
    verbose: Verbose = False,
) -> None:
    """Start everything on this machine: broker, gateway, workers, Flower."""
    from openrl.cli.plan import Choices
    from openrl.cli.serve import serve as run

    base_models = tuple(base_model or ())
    settings = given.settings(
        base_model=base_models[0] if base_models else None,
        model_aliases=tuple(alias) if alias else None,
        data_dir=data_dir,
        flower_port=flower_port,
        gateway={"host": host, "port": port},
        worker={"device": device, "dtype": dtype},
    )
    choices = Choices(
        base_models=base_models,
        separate=separate,
        device_workers=given.counted("--device-workers", device_workers, fits=not separate),
        train_workers=given.counted("--train-workers", train_workers, fits=separate),
        sample_workers=given.counted("--sample-workers", sample_workers, fits=separate),
        flower=not no_flower,
        program=tuple(program or ()),
    )
    key = api_key or os.environ.get("OPENRL_API_KEY")
    raise typer.Exit(run(settings, choices, os.environ, key=key, verbose=verbose))


@app.command()
def status(data_dir: DataDir = None) -> None:
    """What `openrl serve` runs on this machine, and how busy its workers are."""
    from openrl.cli.home import read_status
    from openrl.cli.roll import worker_lines

    facts = read_status(given.settings(data_dir=data_dir).home)
    typer.echo(f"{facts['url']} serves {', '.join(facts['models'])}, pid {facts['pid']}")
    for name, part in facts["parts"].items():
        typer.echo(f"  {name:<16} pid {part['pid']:<8} {part['address']}")
    for line in worker_lines(facts["broker"]):
        typer.echo(line)


@app.command()
def gateway(host: Host = None, port: Port = None, log_format: LogFormat = None) -> None:
    """Run the HTTP server alone."""
    with endings.component():
        from openrl.cli.gateway import run
        from openrl.cli.telling import telling

        settings = given.component_settings(gateway={"host": host, "port": port}, log={"format": log_format})
        with telling("openrl-gateway", settings):
            run(settings)


@app.command()
def worker(
    role: Annotated[Literal["train", "sample", "device", "reward"], typer.Argument(help="device trains and samples.")],
    name: Annotated[str | None, typer.Option(help="How the worker calls itself; by default host and pid.")] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            show_default=False,
            help="Train with a group of so many processes, each with a GPU where there are any. [1]",
        ),
    ] = 1,
    log_format: LogFormat = None,
) -> None:
    """Run one worker alone.

    A train worker may be a group of processes that share the base model and the work. --processes starts them with
    PyTorch's launcher; on several machines, start `torchrun … -m openrl.cli.main worker train` on each.
    """
    with endings.component():
        if name is not None:
            os.environ["OPENRL_WORKER_ID"] = name
        settings = given.component_settings(log={"format": log_format})
        if processes > 1:
            from workers.train.group.launch import launch

            os.environ["OPENRL_LOG__FORMAT"] = settings.log.format
            raise typer.Exit(launch(role, processes, settings.train))
        from openrl.cli.telling import telling
        from workers.start import run

        with telling(f"openrl-{role}", settings):
            run(role, settings)


@app.command()
def migrate(
    tenant: Annotated[
        str | None, typer.Option(help="Also know the key in OPENRL_API_KEY as this tenant's, who is made if absent.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Bring the catalog's tables up to date. A gateway does so itself at its start."""
    from openrl.cli.keys import migrate as run

    typer.echo(run(given.settings(data_dir=data_dir), tenant, os.environ.get("OPENRL_API_KEY")))


@app.command()
def doctor(
    base_model: BaseModel = None,
    data_dir: DataDir = None,
    device: Device = None,
    dtype: Dtype = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Look for what would keep `openrl serve` from working here."""
    from openrl.cli import doctor as checks

    findings = checks.examine(
        lambda: given.settings(base_model=base_model, data_dir=data_dir, worker={"device": device, "dtype": dtype})
    )
    typer.echo(checks.as_json(findings) if as_json else checks.as_text(findings))
    if checks.any_failed(findings):
        raise typer.Exit(1)


@keys_app.command("create")
def keys_create(
    tenant: str,
    expires_days: Annotated[int | None, typer.Option(min=1, help="Days until it is refused; never by default.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Make a key and print it: this is the only time it can be seen."""
    from openrl.cli.keys import create

    typer.echo(create(given.settings(data_dir=data_dir), tenant, expires_days))


@keys_app.command("list")
def keys_list(data_dir: DataDir = None) -> None:
    """All keys, without their secrets."""
    from openrl.cli.keys import listed

    typer.echo(listed(given.settings(data_dir=data_dir)))


@keys_app.command("revoke")
def keys_revoke(
    key_id: Annotated[int, typer.Argument(help="As `openrl keys list` shows it.")], data_dir: DataDir = None
) -> None:
    """Refuse a key, at the latest half a minute from now."""
    from openrl.cli.keys import revoke

    revoke(given.settings(data_dir=data_dir), key_id)


@models_app.command("list")
def models_list(data_dir: DataDir = None) -> None:
    """The models, and which of them are here."""
    from openrl.cli.pulling import listed

    typer.echo(listed(given.settings(data_dir=data_dir).home))


@models_app.command("pull")
def models_pull(
    name: str,
    to: Annotated[Path | None, typer.Option(help="Put its folder there, not in the data directory.")] = None,
    accept_terms: Annotated[bool, typer.Option("--accept-terms", help="Agree to the model's terms of use.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Fetch or make a model."""
    from openrl.cli.pulling import pull_with_bar, require_terms
    from openrl.models.catalogue import folder_of, named

    model = named(name)
    require_terms(model, accept_terms)
    home = given.settings(data_dir=data_dir).home
    pull_with_bar(model, to.expanduser() / model.name if to else folder_of(model, home))


def main() -> None:
    """The entry point: an error on purpose becomes one line on standard error and exit status 1."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if len(arguments) < len(sys.argv) - 1:
        app(arguments)
        return
    with endings.command():
        app(arguments)


if __name__ == "__main__":
    main()
