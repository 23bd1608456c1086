"""`vpdr flower`: the same runs with Flower between clients and server."""

from pathlib import Path
from typing import Annotated

import typer

from vpdr.cli.printing import console, print_json
from vpdr.cli.results import tell_run

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
    from vpdr.flower.server_app import single_plan
    from vpdr.flower.simulation import simulate_in_process, simulate_on_ray
    from vpdr.report.files import write_run

    start = simulate_on_ray if ray else simulate_in_process
    record = start(single_plan(plan, tuple(settings or ())), out, resume=resume)
    write_run(record, out)
    if as_json:
        print_json({**record, "out": str(out)})
    else:
        tell_run(record, out)
