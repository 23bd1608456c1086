"""`vpdr data`: list benchmarks, check the user's copies, and draw splits."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr.cli.output import ProgressBars, console, print_json
from vpdr.data import BENCHMARK_SPECS
from vpdr.data.benchmark import SplitConfig, split_benchmark, write_split
from vpdr.data.spec import BenchmarkSpec, DatasetReport
from vpdr.report.tables import Table
from vpdr.rng import Streams
from vpdr.validation import check_known, coerce, parse_override

data = typer.Typer(
    rich_markup_mode="markdown",
    help="List benchmarks, check your copies of them, and draw splits. Nothing is downloaded.",
    no_args_is_help=True,
)

BenchmarkArgument = Annotated[str, typer.Argument(metavar="NAME", help="The benchmark: a name from `vpdr data list`.")]
RootOption = Annotated[Path, typer.Option(help="The directory with the unpacked data.")]
DomainsOption = Annotated[str | None, typer.Option(help="Only these domains, such as mnist,usps; all if not given.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


@data.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the benchmarks: the files they need, where to get them, their licences and sizes."""
    if as_json:
        print_json({"benchmarks": [benchmark_data(spec) for spec in BENCHMARK_SPECS.values()]})
        return
    for spec in BENCHMARK_SPECS.values():
        console.print(f"{spec.name}  {spec.title}, {spec.modality}, {len(spec.class_names)} classes")
        sizes = {}
        for domain in spec.domains:
            text = f"{sum(domain.train):,} samples"
            if domain.test:
                text = f"{sum(domain.train):,} training and {sum(domain.test):,} test samples"
            sizes[f"    {domain.name}"] = text
        console.print(Table.from_fields(sizes).to_text())
        for label, text in {"needs": spec.expected_files, "where": spec.download_info, "licence": spec.licence}.items():
            console.print(f"  {label:8}{text}")
        console.print()
    console.print("Nothing is downloaded. `vpdr data check NAME --root DIR` says whether your copy is complete.")


@data.command()
def check(
    name: BenchmarkArgument, root: RootOption, domains: DomainsOption = None, as_json: JsonOption = False
) -> None:
    """Read and count every sample of your copy, and compare it with the published sizes.

    Exit codes: 0 complete, 1 something differs from the published data, 2 wrong input.
    """
    spec = _benchmark_spec(name)
    with ProgressBars(show=not as_json) as progress:
        report = spec.check(root, progress=progress.update, domains=_parse_domains(domains))
    if as_json:
        counts = [
            {
                "domain": count.domain,
                "part": count.part,
                "total": count.total,
                "expected": sum(count.expected),
                "classes": dict(zip(spec.class_names, count.counts, strict=True)),
            }
            for count in report.counts
        ]
        fine, findings = not report.issues, list(report.issues)
        print_json({"name": report.benchmark, "fine": fine, "findings": findings, "counts": counts})
    else:
        _print_dataset_report(spec, report)
    if report.issues:
        raise typer.Exit(1)


@data.command()
def manifest(
    name: BenchmarkArgument,
    root: RootOption,
    out: Annotated[Path, typer.Option(help="The file to write the split to.")],
    seed: Annotated[int, typer.Option(help="Seed of the split.", min=0)] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change one setting of the split, such as skew=pooled or clients=4. May be repeated.",
        ),
    ] = None,
    domains: DomainsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a split of a benchmark over clients, and write it to a file for benchmark.manifest.

    Without --set it is the split of the paper. A run without a manifest draws its own split. Exit codes:
    0 done, 2 wrong input.
    """
    spec = _benchmark_spec(name)
    split_config = override_split_config(spec.split_config, settings or [])
    benchmark = spec.load_labels(root, domains=_parse_domains(domains))
    benchmark.check_every_class()
    split = split_benchmark(benchmark, split_config, Streams(seed))
    write_split(out, split)
    if as_json:
        print_json({**split.to_data(), "out": str(out)})
        return
    rows = [
        [each.client, *(f"{len(indices):,}" for indices in (each.train, each.validation, each.test))]
        for each in split.client_splits
    ]
    console.print(Table.from_texts(["client", "train", "validation", "test"], rows).to_text(console.width))
    for warning in benchmark.warnings:
        console.print(f"! {warning}")
    console.print(f"written to {out} (labels {split.labels_digest[:12]})")


def _benchmark_spec(name: str) -> BenchmarkSpec:
    check_known("benchmark", [name], BENCHMARK_SPECS)
    return BENCHMARK_SPECS[name]


def _parse_domains(domains: str | None) -> list[str] | None:
    return None if domains is None else [name.strip() for name in domains.split(",") if name.strip()]


def override_split_config(split_config: SplitConfig, settings: Iterable[str]) -> SplitConfig:
    """A split configuration with some settings (`KEY=VALUE`) changed."""
    types = {name: type(value) for name, value in split_config.to_data().items()}
    for text in settings:
        (_, key), value = parse_override(f"division.{text}")
        check_known("setting of a division", [key], types)
        split_config = replace(split_config, **{key: coerce(key, value, types[key])})
    return split_config


def benchmark_data(spec: BenchmarkSpec) -> dict[str, Any]:
    """One benchmark as data."""
    return {
        "name": spec.name,
        "title": spec.title,
        "modality": spec.modality,
        "classes": list(spec.class_names),
        "domains": [
            {
                "name": domain.name,
                "title": domain.title,
                "train": sum(domain.train),
                "test": sum(domain.test) if domain.test else None,
            }
            for domain in spec.domains
        ],
        "needs": spec.expected_files,
        "where": spec.download_info,
        "licence": spec.licence,
        "division": spec.split_config.to_data(),
    }


def _print_dataset_report(spec: BenchmarkSpec, report: DatasetReport) -> None:
    """Counts of your copy and of the published data, one row per domain and part, and what differs."""
    rows = [
        [
            count.domain,
            count.part,
            f"{count.total:,}",
            f"{sum(count.expected):,}",
            *(f"{size:,}" for size in count.counts),
        ]
        for count in report.counts
    ]
    if rows:
        table = Table.from_texts(["domain", "part", "found", "published", *spec.class_names], rows)
        console.print(table.to_text(console.width))
    for issue in report.issues:
        console.print(f"! {issue}")
    number = len(report.issues)
    if number:
        console.print(f"{number} thing{'s are' if number > 1 else ' is'} not as published")
    else:
        console.print(f"{spec.title} is whole")
