"""`vpdr flower`: the same runs with Flower between clients and server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr.cli.printing import console, print_json
from vpdr.cli.results import tell_run
from vpdr.errors import InvalidInput
from vpdr.plan import Plan

flower = typer.Typer(
    help="Runs over Flower: an app folder, a simulation, a deployment.", no_args_is_help=True
)

Source = Annotated[str, typer.Option("--plan", metavar="NAME|FILE", help="A preset or a TOML file.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting.")
]


@flower.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the app.")],
    plan: Source = "paper",
    settings: Settings = None,
) -> None:
    """Write an app folder for `flwr run`; its noise comes from the operating system."""
    from vpdr.flower.scaffold import write_app
    from vpdr.flower.server_app import single_plan

    chosen = single_plan(plan, ("release.noise=system", *(settings or ())))
    for path in write_app(folder, chosen):
        console.print(str(path))


@flower.command()
def simulate(
    plan: Source = "paper",
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("runs/flower"),
    ray: Annotated[bool, typer.Option("--ray", help="Clients in Ray's processes, not in this one.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out stopped.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as one JSON object.")] = False,
) -> None:
    """Run a plan over Flower's messages on this machine; the numbers are those of `vpdr run`."""
    _ready()
    from vpdr.flower.server_app import single_plan
    from vpdr.flower.simulation import simulate_in_process, simulate_on_ray
    from vpdr.report.files import write_run

    start = simulate_on_ray if ray else simulate_in_process
    record = start(single_plan(plan, tuple(settings or ())), out, resume=resume)
    write_run(record, out)
    _tell(record, out, as_json)


@flower.command()
def up(  # noqa: PLR0913 - one parameter per option of the command
    plan: Source = "paper",
    settings: Settings = None,
    clients: Annotated[int, typer.Option(help="SuperNodes, one a client of the plan.", min=1)] = 4,
    secure: Annotated[
        bool, typer.Option("--secure/--insecure", help="TLS and node authentication, or neither.")
    ] = True,
    out: Annotated[Path, typer.Option(help="Folder for keys, nodes, logs and results.")] = Path("runs/up"),
    minimum: Annotated[int, typer.Option(help="Valid answers a round needs; 0: all.", min=0)] = 0,
    round_timeout: Annotated[float, typer.Option(help="Seconds that a round may take.")] = 600.0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last round in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as one JSON object.")] = False,
) -> None:
    """Start a SuperLink and SuperNodes as processes on loopback, run a plan over them, and stop them."""
    _ready()
    from vpdr.flower.deployment import Deployment
    from vpdr.flower.post import ServerTerms

    chosen = _sized(plan, tuple(settings or ()), clients)
    terms = ServerTerms(clients=clients, minimum=minimum or clients, round_timeout=round_timeout)
    with Deployment(folder=out, plan=chosen, secure=secure) as deployment:
        if not as_json:
            console.print(f"{clients} nodes are up; progress: {deployment.processes.logs / 'run.log'}")
        deployment.submit(terms, resume=resume)
        record = deployment.result()
    _tell(record, deployment.results, as_json)


@flower.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where keys are kept; what is there stays.")],
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address of the server: makes its certificate.")
    ] = None,
    node: Annotated[list[str] | None, typer.Option(help="A node: makes its key pair.")] = None,
) -> None:
    """Make a server's certificate with its authority, or a node's key pair, each on its own machine."""
    _ready()
    from vpdr.flower.keys import Keys

    if not host and not node:
        raise InvalidInput("say what to make: --host NAME on the server, --node NAME on a node")
    Keys(folder).make(host or (), node or ())
    for path in sorted(folder.iterdir()):
        console.print(str(path))


def _sized(source: str, settings: tuple[str, ...], clients: int) -> Plan:
    """The plan with so many clients, if its benchmark can have them."""
    from vpdr.engines.seats import seats_of
    from vpdr.flower.server_app import single_plan
    from vpdr.progress import quiet
    from vpdr.rng import Streams

    for more in ((), (f"benchmark.clients={clients}",)):
        plan = single_plan(source, (*settings, *more))
        found = len(seats_of(plan, Streams(plan.run.seed), quiet).clients)
        if found == clients:
            return plan
    raise InvalidInput(f"the plan has {found} clients, --clients says {clients}; say --clients {found}")


def _ready() -> None:
    """Flower is there, and stays at home."""
    from importlib.util import find_spec

    from vpdr.flower.offline import go_offline

    if find_spec("flwr") is None:
        raise InvalidInput("Flower is not installed; pip install 'vpdr[flower]'")
    go_offline()


def _tell(record: Mapping[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        print_json({**record, "out": str(out)})
        return
    tell_run(record, out)
    exchange = record["exchange"]
    console.print(f"messages without an answer: {exchange['missing']}, dropped: {exchange['dropped']}")
