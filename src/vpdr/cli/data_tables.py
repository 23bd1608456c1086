"""What `vpdr data` shows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from vpdr.cli.printing import console
from vpdr.data import Manifest, Source
from vpdr.data.sources import Checkup, DomainFacts


def listing(source: Source) -> dict[str, Any]:
    """One benchmark for a program."""
    return {
        "name": source.name,
        "title": source.title,
        "modality": source.modality,
        "classes": list(source.class_names),
        "domains": [_facts(facts) for facts in source.domains],
        "needs": source.needs,
        "where": source.where,
        "licence": source.licence,
        "division": source.division.to_data(),
    }


def tell_list(sources: Iterable[Source]) -> None:
    """All benchmarks for a person."""
    for source in sources:
        console.print(
            f"[bold]{source.name}[/]  {source.title}, {source.modality}, {len(source.class_names)} classes"
        )
        table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2))
        for facts in source.domains:
            table.add_row("", facts.name, _sizes(facts))
        console.print(table)
        for word, text in (("needs", source.needs), ("where", source.where), ("licence", source.licence)):
            console.print(f"  [dim]{word:8}[/]{escape(text)}")
        console.print()
    console.print("Nothing is downloaded. `vpdr data check NAME --root DIR` says whether your copy is whole.")


def checkup_content(source: Source, checkup: Checkup) -> dict[str, Any]:
    """What a check found, for a program."""
    return {
        "name": checkup.source,
        "fine": not checkup.findings,
        "findings": list(checkup.findings),
        "counts": [
            {
                "domain": count.domain,
                "part": count.part,
                "total": count.total,
                "expected": sum(count.expected),
                "classes": dict(zip(source.class_names, count.classes, strict=True)),
            }
            for count in checkup.counts
        ],
    }


def tell_checkup(source: Source, checkup: Checkup) -> None:
    """What a check found, for a person."""
    table = Table("domain", "part", "found", "published", *source.class_names, box=None, pad_edge=False)
    for count in checkup.counts:
        classes = (f"{size:,}" for size in count.classes)
        table.add_row(count.domain, count.part, f"{count.total:,}", f"{sum(count.expected):,}", *classes)
    if checkup.counts:
        console.print(table)
    for line in checkup.findings:
        console.print(f"[yellow]![/] {escape(line)}")
    if checkup.findings:
        found = len(checkup.findings)
        console.print(f"{found} thing{'s are' if found > 1 else ' is'} not as published")
    else:
        console.print(f"[green]{source.title} is whole[/]")


def tell_manifest(manifest: Manifest, out: Path, remarks: tuple[str, ...]) -> None:
    """Who got how many."""
    table = Table("client", "train", "validation", "test", box=None, pad_edge=False)
    for portion in manifest.portions:
        parts = (portion.train, portion.validation, portion.test)
        table.add_row(portion.client, *(f"{len(rows):,}" for rows in parts))
    console.print(table)
    for line in remarks:
        console.print(f"[yellow]![/] {escape(line)}")
    console.print(f"kept in {out} (labels {manifest.labels[:12]})")


def _facts(facts: DomainFacts) -> dict[str, Any]:
    return {
        "name": facts.name,
        "title": facts.title,
        "train": sum(facts.train),
        "test": sum(facts.test) if facts.test else None,
    }


def _sizes(facts: DomainFacts) -> str:
    if facts.test:
        return f"{sum(facts.train):,} training and {sum(facts.test):,} test samples"
    return f"{sum(facts.train):,} samples"
