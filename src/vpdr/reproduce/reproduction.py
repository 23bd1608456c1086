"""Reproducing one study: from its id to its page, figure and raw numbers."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from vpdr.attacks import AttackFactory
from vpdr.federation import Job, JobResult
from vpdr.privacy import NoiseOrigin
from vpdr.reproduce.figures import FigureContext, draw_figure
from vpdr.reproduce.pages import study_dir, write_study_files
from vpdr.reproduce.run import RUNS_DIR, TIMED_RUNS_DIR, ExecutionOptions, is_finished, run_study
from vpdr.reproduce.studies import ReproduceOptions, Study, StudyCell, load_study, make_cells
from vpdr.reproduce.summaries import StudySummary, summarise_study
from vpdr.validation import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A study with the user's options, its cells and its output directory.

    >>> options = ReproduceOptions(smoke=True, seeds="0")
    >>> Reproduction.from_id("fig-budget", options, Path("out")).remaining_runs
    3
    """

    study: Study
    options: ReproduceOptions
    cells: tuple[StudyCell, ...]
    out: Path

    @classmethod
    def from_id(cls, name: str, options: ReproduceOptions, out: Path) -> "Reproduction":
        """Build and check all configs of one of `study_ids()` before anything runs; raises InvalidInput."""
        study = load_study(name)
        options.check_study(study)
        return cls(study=study, options=options, cells=tuple(make_cells(study, options)), out=out)

    @cached_property
    def jobs(self) -> list[Job]:
        """The distinct runs, seed by seed, so that an interrupted study has complete seeds.

        Uploads are stored only where secret noise makes them impossible to replay.
        """
        attacks = self.options.attacks_for(self.study)
        observers = () if attacks is None else (AttackFactory(attacks),)
        jobs: dict[str, Job] = {}
        for seed, cell in product(self.options.seeds_for(self.study), self.cells):
            for radius in cell.radii:
                config = cell.config(radius, seed)
                name, is_secret = config.config_hash, config.release.noise == NoiseOrigin.SYSTEM
                job = Job(cell.key.dataset, cell.key.method, config, self.runs_dir / name, observers, is_secret)
                jobs.setdefault(name, job)
        return list(jobs.values())

    @property
    def runs_dir(self) -> Path:
        return self.out / (TIMED_RUNS_DIR if self.study.alone else RUNS_DIR)

    @property
    def output_dir(self) -> Path:
        """The directory of the page; a page of some points never overwrites a complete one."""
        directory = study_dir(self.out, self.study.id, smoke=self.options.smoke)
        return directory.with_name(f"{directory.name}-points") if self.options.points else directory

    @property
    def remaining_runs(self) -> int:
        return sum(not is_finished(job) for job in self.jobs)


def count_runs(study: Study) -> int:
    """The number of runs of a study if all its data are available."""
    cells = make_cells(study, ReproduceOptions(count_with_substitutes=True))
    return len(study.seeds) * sum(len(cell.radii) for cell in cells)


@dataclass(frozen=True, slots=True)
class ReproductionResult:
    """The summary and its files (None and empty where no page was written), and the failed runs."""

    summary: StudySummary | None
    files: tuple[Path, ...] = ()
    failures: tuple[JobResult, ...] = ()
    stopped: bool = False


def run_reproduction(reproduction: Reproduction, execution: ExecutionOptions) -> ReproductionResult:
    """Run the unfinished jobs of a study and write its page; raises InvalidInput if no cell can run.

    Nothing is written if the reproduction was stopped or no run gave a number, so that an earlier page with
    numbers is never replaced by an empty one.
    """
    study = reproduction.study
    if not reproduction.jobs:
        reasons = dict.fromkeys(str(cell.why_not) for cell in reproduction.cells)
        raise InvalidInput(f"{study.id}: nothing can be run ({'; '.join(reasons)}); add it, or --smoke")
    results = run_study(study, reproduction.jobs, execution)
    failures = tuple(results.failures)
    if execution.stop() and reproduction.remaining_runs > len(failures):
        return ReproductionResult(None, failures=failures, stopped=True)
    summary = summarise_study(study, reproduction.options, reproduction.cells, results)
    if not any(row.metrics for row in summary.lines):
        if not failures:
            rows = [row for row in summary.lines if row.why is not None]
            own_data = [row.why for row in rows if summary.datasets[row.dataset].given and row.why]
            reason = [*own_data, *(row.why for row in rows), "nothing measured"][0]
            raise InvalidInput(f"{study.id}: nothing can be run: {reason}")
        return ReproductionResult(None, failures=failures)
    cells, seed = reproduction.cells, summary.seeds[0]
    context = FigureContext(study=study, cells=cells, seed=seed, runs_dir=reproduction.runs_dir)
    figure, summary = draw_figure(context, summary)
    files = write_study_files(summary, figure, reproduction.output_dir)
    return ReproductionResult(summary, tuple(files), failures)
