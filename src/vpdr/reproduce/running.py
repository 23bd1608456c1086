"""Running what is missing: every run has a folder named after its plan, so nothing is run twice."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vpdr.engines.build import build
from vpdr.engines.runner import never
from vpdr.engines.sweep import Done, Job, sweep
from vpdr.errors import VpdrError, one_line
from vpdr.plan import Plan
from vpdr.progress import Progress, quiet
from vpdr.records import RunFolder
from vpdr.records.store import read_record
from vpdr.reproduce.catalogue import Study
from vpdr.reproduce.cells import Cell
from vpdr.reproduce.reading import READERS, Reading, validation


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run gave: only what the table needs of its record."""

    reading: Reading
    validation: float | None
    sentence: str  # what its guarantee covers
    clients: tuple[str, ...]
    wall_seconds: float
    versions: dict[str, str]


Results = dict[str, Measured]  # by the identity of the plan


def ignore(what: object) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Company:
    """Who watches, who may stop it, and how many runs go on at the same time."""

    workers: int = 1
    loading: Progress = quiet
    there: Callable[[int], None] = ignore  # how many runs need not be made again
    after_run: Callable[[Done], None] = ignore
    stop: Callable[[], bool] = never


@dataclass(slots=True)
class Harvest:
    """What was measured so far, and why some plans were not."""

    results: Results = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # identity of a plan -> why
    failed: list[Done] = field(default_factory=list)  # those of them that should have run

    def refuse(self, job: Job, error: Exception) -> None:
        """A plan that cannot start; unless a user's mistake explains it, its run has failed."""
        if not isinstance(error, VpdrError):
            self.fail(Done(job, None, one_line(error)))
        self.refused[job.plan.identity] = one_line(error)

    def fail(self, done: Done) -> None:
        """A run that has ended early."""
        self.failed.append(done)
        self.refused[done.job.plan.identity] = str(done.trouble)


def jobs_of(cells: Sequence[Cell], seeds: Sequence[int], out: Path) -> list[Job]:
    """Every run that the cells ask for, once; seed by seed, so that a stopped table has whole seeds."""
    jobs: dict[str, Job] = {}
    for seed in seeds:
        for cell in cells:
            for radius in cell.radii:
                job = cell.job(radius, seed, out)
                jobs.setdefault(job.plan.identity, job)
    return list(jobs.values())


def finished(job: Job) -> bool:
    """Whether a run has left its record, with the attacks that were ordered on it."""
    file = RunFolder(job.out).record
    if not file.exists() or job.attacks is None:
        return file.exists()
    return set(job.attacks.kinds) <= set(read_record(file).get("attacks", {}))


def run_all(study: Study, jobs: Sequence[Job], company: Company) -> Harvest:
    """Read what is there, prepare the data of the rest once, run it; a run that fails ends no other."""
    harvest = Harvest()
    todo = [job for job in jobs if not finished(job)]
    missing = {job.out for job in todo}
    for job in jobs:
        if job.out not in missing:
            _keep(harvest, study, job, RunFolder(job.out).finished(job.plan))
    company.there(len(harvest.results))
    ready = list(_prepared(todo, harvest, company))
    workers = 1 if study.alone else min(company.workers, max(1, len(ready)))
    for done in sweep(ready, workers=workers, resume=True, keep_going=True, stop=company.stop):
        if done.record is not None:
            _keep(harvest, study, done.job, done.record)
        elif done.trouble is not None:
            harvest.fail(done)
        company.after_run(done)
    return harvest


def _keep(harvest: Harvest, study: Study, job: Job, record: dict[str, Any]) -> None:
    harvest.results[job.plan.identity] = Measured(
        reading=READERS[study.reader](record),
        validation=validation(record),
        sentence=record["privacy"]["sentence"],
        clients=tuple(record["clients"]),
        wall_seconds=record["wall_seconds"],
        versions=record["versions"],
    )


def _prepared(jobs: Sequence[Job], harvest: Harvest, company: Company) -> Iterator[Job]:
    """Jobs that can start; decoded pictures and features are cached here, once, for all workers."""
    tried: dict[str, Exception | None] = {}
    for job in jobs:
        key = _data_key(job.plan)
        known = key in tried and (tried[key] is None or isinstance(tried[key], VpdrError))
        if not known and not company.stop():  # what nobody foresaw may be this plan's own trouble
            tried[key] = _trouble(job.plan, company.loading)
        trouble = tried.get(key)
        if trouble is None:
            yield job
        else:
            harvest.refuse(job, trouble)


def _trouble(plan: Plan, loading: Progress) -> Exception | None:
    """What keeps a plan from starting, if anything does."""
    try:
        build(plan, loading)
    except Exception as error:  # noqa: BLE001 - plans on other data can start all the same
        return error
    return None


def _data_key(plan: Plan) -> str:
    """Plans that differ in numbers only: where one can start, the others can."""
    data = plan.to_data()
    kinds = [data[section]["kind"] for section in ("framework", "mechanism", "regulariser")]
    return repr((data["benchmark"], data["model"], data["release"], kinds))
