"""Running the jobs of a study, and selecting the clip norm R of each cell.

Each run has a directory named by the hash of its config, so that no run is repeated.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vpdr.federation import Job, JobResult, build, never_stop, sweep
from vpdr.records import RunDir, RunRecord, read_record
from vpdr.reproduce.metrics import EXTRACTORS, Metrics, validation_accuracy
from vpdr.reproduce.studies import Study, StudyCell
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import VpdrError, format_error

RUNS_DIR = "runs"
TIMED_RUNS_DIR = "runs-timed"  # timed runs are not shared with studies that run in parallel


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The part of a run's record that a study needs."""

    metrics: Metrics
    validation_accuracy: float | None
    privacy_statement: str
    clients: tuple[str, ...]
    wall_seconds: float
    versions: Mapping[str, str]


MetricsByConfig = dict[str, RunMetrics]  # config hash -> metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionOptions:
    """How runs are executed; nothing here changes a result."""

    workers: int = 1  # parallel runs
    loading: ProgressCallback = no_progress  # progress of loading and encoding data
    on_existing_runs: Callable[[int], None] = lambda _: None  # called once, with the number of finished runs
    after_run: Callable[[JobResult], None] = lambda _: None
    stop: Callable[[], bool] = never_stop  # asked before each run; True ends the reproduction


@dataclass(slots=True)
class StudyResults:
    """The metrics of finished runs and the errors of the others."""

    metrics: MetricsByConfig = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # config hash -> error
    failures: list[JobResult] = field(default_factory=list)  # runs that failed for another reason than input

    def add_error(self, job: Job, error: Exception) -> None:
        """Record that a job could not start; an error other than a VpdrError counts as a failure."""
        if not isinstance(error, VpdrError):
            self.add_failure(JobResult(job, None, format_error(error)))
        self.errors[job.config.config_hash] = format_error(error)

    def add_failure(self, result: JobResult) -> None:
        self.failures.append(result)
        self.errors[result.job.config.config_hash] = str(result.error)


def is_finished(job: Job) -> bool:
    """Whether the record of a run exists and contains the attacks of the job."""
    file = RunDir(job.out).record_path
    if not file.exists() or not job.observers:
        return file.exists()
    record = read_record(file)
    return all(observer.is_complete(record) for observer in job.observers)


def run_study(study: Study, jobs: Sequence[Job], execution: ExecutionOptions) -> StudyResults:
    """Read the records of finished jobs and run the others; a failed run does not end the others."""
    results = StudyResults()
    unfinished = [job for job in jobs if not is_finished(job)]
    unfinished_dirs = {job.out for job in unfinished}
    for job in jobs:
        if job.out not in unfinished_dirs:
            _add_metrics(results, study, job, RunDir(job.out).read_finished(job.config))
    execution.on_existing_runs(len(results.metrics))
    startable = list(_startable_jobs(unfinished, results, execution))
    workers = 1 if study.alone else min(execution.workers, max(1, len(startable)))
    for result in sweep(startable, workers=workers, resume=True, keep_going=True, stop=execution.stop):
        if result.record is not None:
            _add_metrics(results, study, result.job, result.record)
        elif result.error is not None:
            results.add_failure(result)
        execution.after_run(result)
    return results


def _add_metrics(results: StudyResults, study: Study, job: Job, record: RunRecord) -> None:
    results.metrics[job.config.config_hash] = RunMetrics(
        metrics=EXTRACTORS[study.reader](record),
        validation_accuracy=validation_accuracy(record),
        privacy_statement=record.privacy.sentence,
        clients=record.clients,
        wall_seconds=record.wall_seconds,
        versions=record.versions,
    )


def _startable_jobs(jobs: Sequence[Job], results: StudyResults, execution: ExecutionOptions) -> Iterator[Job]:
    """Jobs whose federation can be built; building also fills the feature cache for all workers.

    Of configs that differ in numbers only one is built: if it can start, so can the others.
    """
    errors: dict[str, Exception | None] = {}
    for job in jobs:
        data = job.config.to_dict()
        kinds = [data[section]["kind"] for section in ("framework", "mechanism", "regulariser")]
        key = repr((data["benchmark"], data["model"], data["release"], kinds))
        known = key in errors and (errors[key] is None or isinstance(errors[key], VpdrError))
        if not known and not execution.stop():  # an unexpected error may concern this config only
            try:
                build(job.config, execution.loading)
                errors[key] = None
            except Exception as error:  # noqa: BLE001 - configs on other data may still start
                errors[key] = error
        reason = errors.get(key)
        if reason is None:
            yield job
        else:
            results.add_error(job, reason)


@dataclass(frozen=True, slots=True)
class SelectedClipNorm:
    """The selected R with its runs by seed, the runs of the whole grid, and the split of the selection."""

    radius: float | None
    runs: Mapping[int, RunMetrics]
    grid: Mapping[float | None, Mapping[int, RunMetrics]]
    selected_on: str  # "validation" or "test"; "nothing" for a grid of one value


def select_clip_norm(
    cell: StudyCell, finished: MetricsByConfig, seeds: Sequence[int], select: str = "validation", metric: str = "avg"
) -> SelectedClipNorm | None:
    """The R with the best mean over seeds; ties go to the smaller R. None where a run is missing."""
    hashes = {radius: {seed: cell.config_hash(radius, seed) for seed in seeds} for radius in cell.radii}
    if not hashes or any(each not in finished for row in hashes.values() for each in row.values()):
        return None
    grid = {radius: {seed: finished[each] for seed, each in row.items()} for radius, row in hashes.items()}
    if len(grid) == 1:
        (radius,) = grid
        return SelectedClipNorm(radius, grid[radius], grid, "nothing")
    validated = all(run.validation_accuracy is not None for runs in grid.values() for run in runs.values())
    split = "validation" if select == "validation" and validated else "test"
    scores = {radius: mean_score(runs, split, metric) for radius, runs in grid.items()}
    best = max(sorted(scores, key=lambda r: -1.0 if r is None else r), key=lambda radius: scores[radius])
    return SelectedClipNorm(best, grid[best], grid, split)


def mean_score(runs: Mapping[int, RunMetrics], split: str, metric: str) -> float:
    """The mean over seeds of the validation accuracy, or of a metric on the test set."""
    if split == "validation":
        return statistics.fmean(run.validation_accuracy for run in runs.values() if run.validation_accuracy is not None)
    return statistics.fmean(run.metrics.get(metric, float("-inf")) for run in runs.values())
