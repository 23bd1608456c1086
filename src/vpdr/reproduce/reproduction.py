"""One table or figure from its id to its files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpdr.engines.sweep import Job
from vpdr.errors import InvalidInput
from vpdr.reproduce.catalogue import Study, load_study
from vpdr.reproduce.cells import Cell, cells_of
from vpdr.reproduce.drawing import dots
from vpdr.reproduce.output import folder_of, write_all
from vpdr.reproduce.running import Company, Harvest, finished, jobs_of, run_all
from vpdr.reproduce.summary import summarise
from vpdr.reproduce.wish import Wish

if TYPE_CHECKING:
    from vpdr.report.figures import Figure

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
        return cls(study=study, wish=wish, cells=tuple(cells_of(study, wish)), out=out)

    @property
    def jobs(self) -> list[Job]:
        """Every run, once."""
        runs = self.out / (ALONE if self.study.alone else RUNS)
        return jobs_of(self.cells, self.wish.seeds_of(self.study), runs)

    @property
    def folder(self) -> Path:
        """Where the page goes."""
        return folder_of(self.out, self.study.id, smoke=self.wish.smoke)

    @property
    def left(self) -> int:
        """How many runs have not left a record."""
        return sum(not finished(job) for job in self.jobs)


@dataclass(frozen=True, slots=True)
class Finished:
    """The summary and its files; None where it was stopped."""

    summary: Mapping[str, Any] | None
    files: tuple[Path, ...] = ()


def reproduce(what: Reproduction, company: Company) -> Finished:
    """Run what is missing, then write the page; a stopped one writes nothing and can be asked for again."""
    if not what.jobs:
        reasons = dict.fromkeys(str(cell.why_not) for cell in what.cells)
        raise InvalidInput(f"{what.study.id}: nothing can be run ({'; '.join(reasons)}); add it, or --smoke")
    harvest = run_all(what.study, what.jobs, company)
    if company.stop() and what.left:
        return Finished(None)
    summary = summarise(what.study, what.wish, what.cells, harvest)
    figure = FIGURES.get(what.study.kind, _table)(what, summary, harvest)
    return Finished(summary, tuple(write_all(summary, figure, what.folder)))


def _table(_: Reproduction, summary: dict[str, Any], __: Harvest) -> "Figure":
    return dots(summary)


FIGURES: dict[str, Callable[[Reproduction, dict[str, Any], Harvest], "Figure"]] = {"table": _table}
