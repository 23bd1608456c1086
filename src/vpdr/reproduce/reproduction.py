"""One table or figure from its id to its files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vpdr.engines.sweep import Done, Job
from vpdr.errors import InvalidInput
from vpdr.privacy import Noise
from vpdr.reproduce.catalogue import Study, load_study
from vpdr.reproduce.cells import Cell, cells_of
from vpdr.reproduce.figures.gallery import Scene, draw
from vpdr.reproduce.output import folder_of, write_all
from vpdr.reproduce.running import Company, finished, jobs_of, run_all
from vpdr.reproduce.summary import summarise
from vpdr.reproduce.wish import Wish

RUNS, ALONE = "runs", "runs-timed"  # timed runs are not shared with those that ran side by side


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What will run for one id, and where it goes."""

    study: Study
    wish: Wish
    cells: tuple[Cell, ...]
    out: Path

    @classmethod
    def of(cls, name: str, wish: Wish, out: Path) -> "Reproduction":
        """Decide every plan before anything starts."""
        study = load_study(name)
        wish.fits(study)
        return cls(study=study, wish=wish, cells=tuple(cells_of(study, wish)), out=out)

    @cached_property
    def jobs(self) -> list[Job]:
        """Every run, once."""
        attacks = self.wish.attacks_of(self.study)
        jobs = jobs_of(self.cells, self.wish.seeds_of(self.study), self.runs)
        return [replace(job, attacks=attacks, keep_uploads=_secret(job)) for job in jobs]

    @property
    def runs(self) -> Path:
        """Where every run has its folder."""
        return self.out / (ALONE if self.study.alone else RUNS)

    @property
    def folder(self) -> Path:
        """Where the page goes; one of some points only never writes over a whole one."""
        whole = folder_of(self.out, self.study.id, smoke=self.wish.smoke)
        return whole.with_name(f"{whole.name}-points") if self.wish.points else whole

    @property
    def left(self) -> int:
        """How many runs have not left a record."""
        return sum(not finished(job) for job in self.jobs)


def _secret(job: Job) -> bool:
    """Uploads are worth their room where nobody can draw the noise again."""
    return job.plan.release.noise == Noise.SYSTEM


def runs_of(study: Study) -> int:
    """How many runs a study asks for when all its data are there."""
    return len(study.seeds) * sum(len(cell.radii) for cell in cells_of(study, Wish(stand_in=True)))


def _empty(summary: Mapping[str, Any]) -> bool:
    return not any(line["metrics"] for line in summary["lines"])


def _refused(summary: Mapping[str, Any]) -> InvalidInput:
    """Why a table has no number at all, from the user's own data where they were given."""
    lines = summary["lines"]
    told = [line["why"] for line in lines if line["why"] is not None]
    own = [line["why"] for line in lines if summary["datasets"][line["dataset"]]["given"] and line["why"]]
    return InvalidInput(f"{summary['id']}: nothing can be run: {(own or told or ['nothing measured'])[0]}")


@dataclass(frozen=True, slots=True)
class Finished:
    """The summary and its files, None where there are none to write; and the runs that failed."""

    summary: Mapping[str, Any] | None
    files: tuple[Path, ...] = ()
    failed: tuple[Done, ...] = ()
    stopped: bool = False


def reproduce(what: Reproduction, company: Company) -> Finished:
    """Run what is missing, then write the page; one that was stopped or would be empty is not written.

    A page without any number would replace one that has some.
    """
    if not what.jobs:
        reasons = dict.fromkeys(str(cell.why_not) for cell in what.cells)
        raise InvalidInput(f"{what.study.id}: nothing can be run ({'; '.join(reasons)}); add it, or --smoke")
    harvest = run_all(what.study, what.jobs, company)
    failed = tuple(harvest.failed)
    if company.stop() and what.left > len(failed):
        return Finished(None, failed=failed, stopped=True)
    summary = summarise(what.study, what.wish, what.cells, harvest)
    if _empty(summary) and not failed:
        raise _refused(summary)
    if _empty(summary):
        return Finished(None, failed=failed)
    scene = Scene(study=what.study, cells=what.cells, seed=summary["seeds"][0], runs=what.runs)
    figure = draw(scene, summary)
    return Finished(summary, tuple(write_all(summary, figure, what.folder)), failed)
