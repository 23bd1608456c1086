"""`vpdr data`: list and download benchmarks, check them and your own data, and draw splits."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr.cli.output import ProgressBars, console, print_json
from vpdr.config import RunConfig
from vpdr.data import BENCHMARK_SPECS, OWN_DATA, read_dataset
from vpdr.data.benchmark import SplitConfig, split_benchmark, write_split
from vpdr.data.download import download
from vpdr.data.spec import BenchmarkSpec, DatasetReport
from vpdr.federation.builder import dataset_options
from vpdr.report.tables import Table
from vpdr.rng import Streams
from vpdr.validation import InvalidInput, check_known, coerce, parse_override, parse_overrides

data = typer.Typer(
    rich_markup_mode="markdown",
    help="List and download benchmarks, check them and data of your own, and draw splits.",
    no_args_is_help=True,
)

BenchmarkArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A benchmark of `vpdr data list`; or your own: folder, features, texts, hf."),
]
RootOption = Annotated[str, typer.Option(help="The directory with the unpacked data, or the file.")]
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
    for kind, own in OWN_DATA.items():
        console.print(f"{kind:9} your own: {own.expected_files}")
    console.print()
    console.print(
        "`vpdr data get NAME --root DIR` downloads, `vpdr data check NAME --root DIR` says whether a copy is whole."
    )


@data.command()
def get(
    name: BenchmarkArgument,
    root: Annotated[Path, typer.Option(help="The directory for the files; it is made if it does not exist.")],
    domains: DomainsOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the download.")] = False,
) -> None:
    """Download a benchmark from its public address, unpack and check it; an interrupted download goes on.

    Files that exist are never overwritten. Exit codes: 0 complete, 1 something differs from the published data,
    2 wrong input, or no network.
    """
    check_known("benchmark", [name], BENCHMARK_SPECS)
    spec = BENCHMARK_SPECS[name]
    available = list(dict.fromkeys(domain for file in spec.downloads for domain in file.domains))
    wanted = _parse_domains(domains) or available
    missing = [domain for domain in wanted if domain not in available]
    if missing or not available:
        what = ", ".join(missing) or spec.title
        raise InvalidInput(f"no direct address for {what}; get it by hand: {spec.download_info}")
    files = [file for file in spec.downloads if set(file.domains) & set(wanted)]
    for file in files:
        size = f"{file.size / 1e6:,.1f} MB" if file.size else "size not known beforehand"
        console.print(f"{file.path}  {size}, from {' or '.join(file.urls)}")
    console.print(f"licence: {spec.licence}")
    if omitted := [domain.name for domain in spec.domains if domain.name not in wanted]:
        console.print(f"not downloaded: {', '.join(omitted)}; see {spec.download_info}")
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput("a download is confirmed on a terminal, got none; add --yes")
        typer.confirm(f"download to {root}?", abort=True)
    with ProgressBars(show=True) as progress:
        for file in files:
            download(file, root, progress.update)
    check(name, str(root), ",".join(wanted))


@data.command()
def check(
    name: BenchmarkArgument,
    root: RootOption,
    domains: DomainsOption = None,
    as_json: JsonOption = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Your own data: a setting such as label_column=diagnosis."),
    ] = None,
) -> None:
    """Read and count every sample, and compare a copy of a benchmark with the published sizes.

    Exit codes: 0 complete, 1 something is wrong or differs from the published data, 2 wrong input.
    """
    spec = _benchmark_spec(name, root, settings or [])
    with ProgressBars(show=not as_json) as progress:
        report = spec.check(Path(root), progress=progress.update, domains=_parse_domains(domains))
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
            help="Change one setting of the split, such as skew=pooled or clients=4, or for your own data one "
            "such as label_column=diagnosis. May be repeated.",
        ),
    ] = None,
    domains: DomainsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a split of a benchmark over clients, and write it to a file for benchmark.manifest.

    Without --set it is the split of the paper. A run without a manifest draws its own split. Exit codes:
    0 done, 2 wrong input.
    """
    own = [each for each in settings or [] if name in OWN_DATA and each.partition("=")[0] in OWN_DATA[name].settings]
    spec = _benchmark_spec(name, root, own)
    split_config = override_split_config(spec.split_config, [each for each in settings or [] if each not in own])
    benchmark = spec.load_labels(Path(root), domains=_parse_domains(domains))
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


def _benchmark_spec(name: str, root: str, settings: Sequence[str]) -> BenchmarkSpec:
    """A public benchmark, or the user's own data in `root`, read with settings of `[benchmark]`."""
    check_known("benchmark", [name], [*BENCHMARK_SPECS, *OWN_DATA])
    if name in BENCHMARK_SPECS:
        if settings:
            raise InvalidInput(f"--set is for your own data ({', '.join(OWN_DATA)}), got {name}; leave it out")
        return BENCHMARK_SPECS[name]
    section = parse_overrides([f"benchmark.{text}" for text in settings]).get("benchmark", {})
    check_known(f"setting of {name}", section, OWN_DATA[name].settings)
    config = RunConfig.from_tables({"benchmark": {"kind": name, **section}, "release": {"encoder": "personal"}})
    return read_dataset(name, root, dataset_options(config.benchmark)).to_spec()


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
    published = [] if spec.is_own else ["published"]
    rows = [
        [
            count.domain,
            count.part,
            f"{count.total:,}",
            *(f"{sum(count.expected):,}" for _ in published),
            *(f"{size:,}" for size in count.counts),
        ]
        for count in report.counts
    ]
    if rows:
        table = Table.from_texts(["domain", "part", "found", *published, *spec.class_names], rows)
        console.print(table.to_text(console.width))
    for issue in report.issues:
        console.print(f"! {issue}")
    number = len(report.issues)
    if number:
        expected = "it should be" if spec.is_own else "published"
        console.print(f"{number} thing{'s are' if number > 1 else ' is'} not as {expected}")
    else:
        console.print(f"{spec.title} is whole")
