"""`vpdr data`: which benchmarks there are, whether a user's copy is whole, and how it is divided."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vpdr.cli.data_tables import checkup_content, listing, tell_checkup, tell_list, tell_manifest
from vpdr.cli.printing import print_json
from vpdr.cli.progress import Bars
from vpdr.data import SOURCES, Division, Source, divide
from vpdr.data.manifest_file import write_manifest
from vpdr.plan.values import assigned, fitted, known
from vpdr.rng import Streams

data = typer.Typer(
    help="Benchmarks on your disk: what they need, whether they are whole, how they split.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(SOURCES)}.")]
Root = Annotated[Path, typer.Option(help="The folder that the data were unpacked into.")]
Domains = Annotated[str | None, typer.Option(help="Only these domains, such as mnist,usps.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@data.command("list")
def list_(as_json: AsJson = False) -> None:
    """Show what each benchmark needs, where to get it, and how large it is."""
    if as_json:
        print_json({"benchmarks": [listing(source) for source in SOURCES.values()]})
    else:
        tell_list(SOURCES.values())


@data.command()
def check(name: Name, root: Root, domains: Domains = None, as_json: AsJson = False) -> None:
    """Count and look at everything; exit code 1 where something is not as it was published."""
    source = _source(name)
    with Bars(show=not as_json) as bars:
        checkup = source.check(root, progress=bars.loading, only=_only(domains))
    if as_json:
        print_json(checkup_content(source, checkup))
    else:
        tell_checkup(source, checkup)
    if checkup.findings:
        raise typer.Exit(1)


@data.command()
def manifest(  # noqa: PLR0913 - one parameter per option of the command
    name: Name,
    root: Root,
    out: Annotated[Path, typer.Option(help="The file to keep the split in.")],
    seed: Annotated[int, typer.Option(help="Another seed is another split.", min=0)] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Divide otherwise, such as skew=pooled, clients=4."),
    ] = None,
    domains: Domains = None,
    as_json: AsJson = False,
) -> None:
    """Draw a split once and keep it; without --set it is the paper's. A run draws its own from its plan."""
    source = _source(name)
    division = _divided(source.division, settings or [])
    benchmark = source.roll(root, only=_only(domains))
    drawn = divide(benchmark, division, Streams(seed))
    write_manifest(out, drawn)
    if as_json:
        print_json({**drawn.to_data(), "out": str(out)})
    else:
        tell_manifest(drawn, out, benchmark.remarks)


def _source(name: str) -> Source:
    known("benchmark", [name], SOURCES)
    return SOURCES[name]


def _only(domains: str | None) -> list[str] | None:
    return None if domains is None else [name.strip() for name in domains.split(",") if name.strip()]


def _divided(division: Division, settings: list[str]) -> Division:
    kinds = {name: type(value) for name, value in division.to_data().items()}
    for text in settings:
        (_, key), value = assigned(f"division.{text}")
        known("setting of a division", [key], kinds)
        division = replace(division, **{key: fitted(key, value, kinds[key])})
    return division
