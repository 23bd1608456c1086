"""One table or figure from its id to its files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vpdr.engines.sweep import Job
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
        """Where the page goes."""
        return folder_of(self.out, self.study.id, smoke=self.wish.smoke)

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


def _refuse_nothing(summary: Mapping[str, Any]) -> None:
    """A page without any number is not written: it would replace one that has some."""
    lines = summary["lines"]
    if not any(line["metrics"] for line in lines):
        told = [line["why"] for line in lines if line["why"] is not None]
        own = [line["why"] for line in lines if summary["datasets"][line["dataset"]]["given"] and line["why"]]
        raise InvalidInput(f"{summary['id']}: nothing can be run: {(own or told or ['nothing measured'])[0]}")


@dataclass(frozen=True, slots=True)
class Finished:
    """The summary and its files; None where it was stopped."""

    summary: Mapping[str, Any] | None
    files: tuple[Path, ...] = ()


def reproduce(what: Reproduction, company: Company) -> Finished:
    """Run what is missing, then write the page; a stopped or empty one is not written."""
    if not what.jobs:
        reasons = dict.fromkeys(str(cell.why_not) for cell in what.cells)
        raise InvalidInput(f"{what.study.id}: nothing can be run ({'; '.join(reasons)}); add it, or --smoke")
    harvest = run_all(what.study, what.jobs, company)
    if company.stop() and what.left:
        return Finished(None)
    summary = summarise(what.study, what.wish, what.cells, harvest)
    _refuse_nothing(summary)
    scene = Scene(study=what.study, cells=what.cells, seed=summary["seeds"][0], runs=what.runs)
    figure = draw(scene, summary)
    return Finished(summary, tuple(write_all(summary, figure, what.folder)))
