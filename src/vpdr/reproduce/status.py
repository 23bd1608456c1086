"""What is done and what is missing under a folder of reproductions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.errors import VpdrError
from vpdr.records.store import read_record
from vpdr.reproduce.catalogue import ids
from vpdr.reproduce.output import folder_of, read_summary
from vpdr.reproduce.reproduction import ALONE, RUNS

DONE, PARTLY, MISSING = "done", "partly done", "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One table or figure: whether its page is there, and how many of its rows have numbers."""

    id: str
    smoke: bool
    state: str
    rows: int = 0
    with_numbers: int = 0
    seeds: int = 0
    why: tuple[str, ...] = ()  # what the other rows lack


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run: finished, stopped half-way, or damaged."""

    identity: str
    state: str
    words: str


def pages(out: Path) -> list[Page]:
    """Every id, with and without --smoke where it was tried."""
    found = []
    for name in ids():
        for smoke in (False, True):
            file = folder_of(out, name, smoke=smoke) / f"{name}.json"
            if file.exists():
                found.append(_page(name, smoke, file))
            elif not smoke:
                found.append(Page(id=name, smoke=False, state=MISSING))
    return found


def _page(name: str, smoke: bool, file: Path) -> Page:
    summary = read_summary(file)
    lines = summary["lines"]
    have = [line for line in lines if summary["metric"] in line["metrics"]]
    why = dict.fromkeys(line["verdict"] for line in lines if summary["metric"] not in line["metrics"])
    return Page(
        id=name,
        smoke=smoke,
        state=DONE if len(have) == len(lines) else PARTLY,
        rows=len(lines),
        with_numbers=len(have),
        seeds=len(summary["seeds"]),
        why=tuple(why),
    )


def runs(out: Path) -> list[Run]:
    """Every run folder, in the order of their names."""
    folders = [
        folder for part in (RUNS, ALONE) for folder in sorted((out / part).glob("*")) if folder.is_dir()
    ]
    return [_run(folder) for folder in folders]


def _run(folder: Path) -> Run:
    file = folder / "record.json"
    if not file.exists():
        begun = (folder / "checkpoint.pt").exists()
        return Run(identity=folder.name, state=PARTLY if begun else MISSING, words="no record yet")
    try:
        return Run(identity=folder.name, state=DONE, words=_words(read_record(file)))
    except (VpdrError, KeyError) as error:
        return Run(identity=folder.name, state="damaged", words=str(error))


def _words(record: dict[str, Any]) -> str:
    plan = record["plan"]
    method = f"{plan['mechanism']['kind']} {plan['regulariser']['kind']} R={plan['mechanism']['clip_norm']:g}"
    return (
        f"{plan['benchmark']['kind']} {plan['framework']['kind']} {method} "
        f"eps={plan['budget']['epsilon']:g} seed={record['seed']} rounds={plan['run']['rounds']}"
    )
