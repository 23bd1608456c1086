"""What is done and what is missing under a folder of reproductions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.errors import VpdrError
from vpdr.records import RunFolder
from vpdr.records.store import read_record
from vpdr.reproduce.catalogue import ids
from vpdr.reproduce.output import folder_of, read_summary
from vpdr.reproduce.reproduction import ALONE, RUNS
from vpdr.reproduce.verdicts import NOT_RUN

DONE, PARTLY, MISSING = "done", "partly done", "missing"
NOTHING = "nothing run"  # a page without a number
FAILED = "failed"  # a run that ended early; the same command tries it again
LONGEST = 70  # characters of a reason on a line
_PATH = re.compile(r"(?<!\S)/\S*/(?=\S)")  # what leads to the last part of an absolute path


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
    """One run: finished, stopped half-way, failed, or damaged."""

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
        state=_state(len(have), len(lines)),
        rows=len(lines),
        with_numbers=len(have),
        seeds=len(summary["seeds"]),
        why=tuple(why),
    )


def _state(have: int, rows: int) -> str:
    if have == rows:
        return DONE
    return PARTLY if have else NOTHING


def brief(verdict: str) -> str:
    """A reason that fits on a line: its first clause, with paths cut to their last part."""
    inner = verdict.removeprefix(f"{NOT_RUN} (")
    why = inner if inner == verdict else inner.removesuffix(")")
    text = _PATH.sub("", " ".join(why.split(";")[0].split()))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1].rstrip()}…"


def runs_words(found: Sequence[Page], made: Sequence[Run]) -> str:
    """How many runs are finished; more is said only where something is known to be left."""
    finished = sum(run.state == DONE for run in made)
    words = "1 run is finished" if finished == 1 else f"{finished} runs are finished"
    begun = len(made) - finished
    if begun:
        return f"{words}, {begun} begun; the same command goes on with the rest"
    if made and all(page.state == MISSING for page in found):
        return f"{words}, and no page is written yet; the same command goes on with the rest"
    return words


def runs(out: Path) -> list[Run]:
    """Every run folder, in the order of their names."""
    folders = [
        folder for part in (RUNS, ALONE) for folder in sorted((out / part).glob("*")) if folder.is_dir()
    ]
    return [_run(folder) for folder in folders]


def _run(folder: Path) -> Run:
    home = RunFolder(folder)
    file = home.record
    if not file.exists() and home.failure.exists():
        return Run(identity=folder.name, state=FAILED, words=home.failure.read_text().partition("\n")[0])
    if not file.exists():
        begun = home.checkpoint.exists()
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
