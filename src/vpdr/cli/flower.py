"""`vpdr flower`: runs over Flower: an app, a simulation, or a deployment on this machine."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from vpdr.cli import output
from vpdr.cli.run import print_run
from vpdr.config import RunConfig
from vpdr.federation import load_clients
from vpdr.flower import deployment, server_app
from vpdr.records import RunRecord
from vpdr.report.html import write_run_report
from vpdr.rng import Streams
from vpdr.types import no_progress
from vpdr.validation import InvalidInput

flower = typer.Typer(
    rich_markup_mode="markdown",
    help="Run over Flower: write an app, simulate on this machine, or start a deployment.",
    no_args_is_help=True,
)

ConfigOption = Annotated[
    str, typer.Option("--plan", metavar="NAME|FILE", help="A preset (paper, authors, strict) or a TOML file.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the record as one JSON object.")]


@flower.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory for the app.")],
    plan: ConfigOption = "paper",
    settings: output.SettingsOption = None,
) -> None:
    """Write a Flower app for `flwr run`; its noise comes from the operating system.

    Prints the files that it writes. Exit codes: 0 done, 2 wrong input.
    """
    config = server_app.load_single_config(plan, tuple(settings or ()), assumed=("release.noise=system",))
    for path in deployment.write_app(folder, config):
        output.console.print(str(path))


@flower.command()
def simulate(
    plan: ConfigOption = "paper",
    settings: output.SettingsOption = None,
    out: Annotated[Path, typer.Option(help="Directory of the results.")] = Path("runs/flower"),
    ray: Annotated[
        bool, typer.Option("--ray", help="Run the clients in processes of Ray instead of this process.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the stopped run in --out.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a configuration over Flower's messages on this machine; gives the same numbers as `vpdr run`.

    Needs vpdr[flower]. Exit codes: 0 done, 2 wrong input.
    """
    _require_flower()
    from vpdr.flower import simulation  # it imports flwr, which is optional

    run = simulation.simulate_on_ray if ray else simulation.simulate_in_process
    record = run(server_app.load_single_config(plan, tuple(settings or ())), out, resume=resume)
    write_run_report(record, out)
    _print_result(record, out, as_json=as_json)


@flower.command()
def up(
    plan: ConfigOption = "paper",
    settings: output.SettingsOption = None,
    clients: Annotated[int, typer.Option(help="Number of SuperNodes, one per client.", min=1)] = 4,
    secure: Annotated[
        bool, typer.Option("--secure/--insecure", help="With TLS and node authentication, or without both.")
    ] = True,
    out: Annotated[Path, typer.Option(help="Directory of keys, nodes, logs and results.")] = Path("runs/up"),
    minimum: Annotated[
        int, typer.Option(help="Valid replies that a round needs; 0 is one from every client.", min=0)
    ] = 0,
    round_timeout: Annotated[float, typer.Option(help="Seconds that a round may take.")] = 600.0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the last finished round in --out.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start a SuperLink and SuperNodes as processes on this machine, run a configuration, and stop them.

    Needs vpdr[flower]. Exit codes: 0 done, 2 wrong input.
    """
    _require_flower()
    config = config_with_clients(plan, tuple(settings or ()), clients)
    server_config = server_app.ServerConfig(clients=clients, minimum=minimum or clients, round_timeout=round_timeout)
    with deployment.Deployment(folder=out, config=config, secure=secure) as running:
        if not as_json:
            output.console.print(f"{clients} nodes are up; progress: {running.processes.logs / 'run.log'}")
        running.submit(server_config, resume=resume)
        record = running.wait_for_result()
    _print_result(record, running.results, as_json=as_json)


@flower.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the keys; existing keys are kept.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address of the server; creates its certificate. May be repeated."),
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option(help="A name of a node; creates its key pair. May be repeated.")
    ] = None,
) -> None:
    """Create the certificate of a server with its authority, or key pairs of nodes.

    Run it on the machine that uses the keys, so that private keys never travel. Exit codes: 0 done, 2 wrong
    input.
    """
    _require_flower()
    if not host and not node:
        raise InvalidInput("say what to make: --host NAME on the server, --node NAME on a node")
    deployment.Keys(folder).make(host or (), node or ())
    for path in sorted(folder.iterdir()):
        output.console.print(str(path))


def config_with_clients(source: str, settings: tuple[str, ...], clients: int) -> RunConfig:
    """The configuration with this number of clients, if its benchmark can have them."""
    for extra in ((), (f"benchmark.clients={clients}",)):
        config = server_app.load_single_config(source, settings, assumed=extra)
        number = len(load_clients(config, Streams(config.run.seed), no_progress).clients)
        if number == clients:
            return config
    raise InvalidInput(f"the plan has {number} clients, --clients says {clients}; say --clients {number}")


def _require_flower() -> None:
    """Check that flwr is installed, and turn its telemetry off."""
    if find_spec("flwr") is None:
        raise InvalidInput("Flower is not installed; pip install 'vpdr[flower]'")
    deployment.go_offline()


def _print_result(record: RunRecord, out: Path, *, as_json: bool) -> None:
    if as_json:
        output.print_json(record, out=str(out))
        return
    print_run(record, out)
    if record.exchange is not None:
        missing, dropped = record.exchange.missing, record.exchange.dropped
        output.console.print(f"messages without an answer: {missing}, dropped: {dropped}")
