"""The state of the studies and runs in an output directory, for `vpdr list`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.errors import VpdrError
from vpdr.records import RunDir, read_record
from vpdr.reproduce.pages import read_summary, study_dir
from vpdr.reproduce.reproduction import RUNS_DIR, TIMED_RUNS_DIR
from vpdr.reproduce.studies import study_ids
from vpdr.reproduce.summary import NOT_RUN

DONE, PARTLY, MISSING = "done", "partly done", "missing"
NO_NUMBERS = "nothing run"  # a page without numbers
FAILED, DAMAGED = "failed", "damaged"  # of runs; the same command runs a failed one again
MAX_REASON_LENGTH = 70  # characters
_LEADING_DIRS = re.compile(r"(?<!\S)/\S*/(?=\S)")  # the directories of an absolute path


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyStatus:
    """The state of one study: whether it has a page, and how many of its rows have numbers."""

    id: str
    smoke: bool
    state: str
    rows: int = 0
    with_numbers: int = 0
    seeds: int = 0
    why: tuple[str, ...] = ()  # why the other rows have none


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """The state of one run: done, partly done, missing, failed or damaged."""

    identity: str  # config hash
    state: str
    words: str  # its settings, or the reason for its state


def study_statuses(out: Path) -> list[StudyStatus]:
    """All studies, and the smoke versions that have a page."""
    statuses = []
    for name in study_ids():
        for smoke in (False, True):
            file = study_dir(out, name, smoke=smoke) / f"{name}.json"
            if file.exists():
                statuses.append(_study_status(name, smoke, file))
            elif not smoke:
                statuses.append(StudyStatus(id=name, smoke=False, state=MISSING))
    return statuses


def _study_status(name: str, smoke: bool, file: Path) -> StudyStatus:
    summary = read_summary(file)
    rows = summary["lines"]
    without_numbers = [row for row in rows if summary["metric"] not in row["metrics"]]
    with_numbers = len(rows) - len(without_numbers)
    state = DONE if not without_numbers else PARTLY if with_numbers else NO_NUMBERS
    return StudyStatus(
        id=name,
        smoke=smoke,
        state=state,
        rows=len(rows),
        with_numbers=with_numbers,
        seeds=len(summary["seeds"]),
        why=tuple(dict.fromkeys(row["verdict"] for row in without_numbers)),
    )


def shorten_reason(verdict: str) -> str:
    """The first clause of the reason in a verdict, with paths cut to their last part."""
    inner = verdict.removeprefix(f"{NOT_RUN} (")
    reason = inner if inner == verdict else inner.removesuffix(")")
    text = _LEADING_DIRS.sub("", " ".join(reason.split(";")[0].split()))
    return text if len(text) <= MAX_REASON_LENGTH else f"{text[: MAX_REASON_LENGTH - 1].rstrip()}…"


def describe_runs(studies: Sequence[StudyStatus], runs: Sequence[RunStatus]) -> str:
    """How many runs are finished, and how to continue if runs or pages are missing."""
    finished = sum(run.state == DONE for run in runs)
    text = "1 run is finished" if finished == 1 else f"{finished} runs are finished"
    unfinished = len(runs) - finished
    if unfinished:
        return f"{text}, {unfinished} begun; the same command goes on with the rest"
    if runs and all(study.state == MISSING for study in studies):
        return f"{text}, and no page is written yet; the same command goes on with the rest"
    return text


def run_statuses(out: Path) -> list[RunStatus]:
    """All run directories, sorted by name."""
    return [
        _run_status(directory)
        for parent in (RUNS_DIR, TIMED_RUNS_DIR)
        for directory in sorted((out / parent).glob("*"))
        if directory.is_dir()
    ]


def _run_status(directory: Path) -> RunStatus:
    run_dir = RunDir(directory)
    if run_dir.record_path.exists():
        try:
            state, words = DONE, _describe_record(read_record(run_dir.record_path))
        except (VpdrError, KeyError) as error:
            state, words = DAMAGED, str(error)
    elif run_dir.failure_path.exists():
        state, words = FAILED, run_dir.failure_path.read_text().partition("\n")[0]
    else:
        state, words = (PARTLY if run_dir.checkpoint_path.exists() else MISSING), "no record yet"
    return RunStatus(identity=directory.name, state=state, words=words)


def _describe_record(record: dict[str, Any]) -> str:
    config = record["plan"]
    mechanism = config["mechanism"]
    method = f"{mechanism['kind']} {config['regulariser']['kind']} R={mechanism['clip_norm']:g}"
    return (
        f"{config['benchmark']['kind']} {config['framework']['kind']} {method} "
        f"eps={config['budget']['epsilon']:g} seed={record['seed']} rounds={config['run']['rounds']}"
    )
