"""Runs with a directory: one (start, resume, checkpoints, record), or many jobs in parallel processes."""

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vpdr.config import Experiment, RunConfig
from vpdr.data import Dataset
from vpdr.federation.builder import Federation, build, config_for
from vpdr.federation.rounds import Callbacks, RoundUploads, RunState, never_stop, simulate
from vpdr.io import from_json
from vpdr.privacy import NoiseOrigin, ledger_file
from vpdr.records import RoundRecord, RunDir, RunRecord, UploadStore, finished_record
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import InvalidInput, format_error


@runtime_checkable
class RunObserver(Protocol):
    """Sees the uploads of every round; saved and resumed with the run. It must not change a client."""

    def on_uploads(self, round_uploads: RoundUploads) -> None:
        """Called with each round's uploads, after they were saved and before the server sees them."""

    def state_dict(self) -> Mapping[str, Any]:
        """What it adds to a checkpoint, under keys of its own."""

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a whole checkpoint; raises InvalidInput where it lacks the observer's keys."""

    def add_result(self, record: RunRecord) -> RunRecord:
        """The record of the finished run with what was observed."""


@runtime_checkable
class ObserverFactory(Protocol):
    """Makes the observer of a run. It must be picklable: a sweep sends it to other processes."""

    def __call__(self, federation: Federation, run_dir: RunDir) -> RunObserver:
        """The observer of this run."""

    def is_complete(self, record: RunRecord) -> bool:
        """Whether a record has all that the observer would have added."""

    def complete(self, record: RunRecord, config: RunConfig, run_dir: RunDir, progress: ProgressCallback) -> RunRecord:
        """The record of a finished run with what it lacked, saved again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """Everything about a run that does not change its result.

    Args:
        progress: called while data are loaded.
        on_round_end: called with the run's state after each round.
        stop: asked before each round; True saves a checkpoint and ends the run.
        checkpoint_seconds: the least time between two checkpoints.
        observers: factories of observers of the uploads, such as attacks.
        keep_uploads: whether uploads are saved; under secret noise they cannot be computed again.

    >>> RunOptions(checkpoint_seconds=60).keep_uploads
    True
    """

    progress: ProgressCallback = no_progress
    on_round_end: Sequence[Callable[[RunState], None]] = ()
    stop: Callable[[], bool] = never_stop
    checkpoint_seconds: float = 5.0  # a shorter run is cheaper to repeat than to save
    observers: Sequence[ObserverFactory] = ()
    keep_uploads: bool = True


@dataclass(frozen=True, slots=True)
class RunResult:
    """The record of a finished run, or None for one that was stopped and can be resumed."""

    record: RunRecord | None
    rounds_done: int


def run_federation(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    options: RunOptions | None = None,
    dataset: Dataset | None = None,
) -> RunResult:
    """Run a config into a directory that holds no run yet; with `resume` from the checkpoint in it, bit for bit."""
    config, options = config_for(config, dataset), options or RunOptions()
    run_dir = RunDir(out)
    if resume and run_dir.record_path.exists():
        return RunResult(_read_finished(config, run_dir, options), config.run.rounds)
    begin = time.perf_counter()
    saved = run_dir.checkpoint_to_resume(config, resume=resume)
    # errors in the data or the config are raised here, before anything is written
    federation = build(config, options.progress, dataset=dataset)
    observers = [make_observer(federation, run_dir) for make_observer in options.observers]
    run_dir.create(config, federation.split)
    if config.release.noise == NoiseOrigin.SYSTEM:
        for client in federation.clients:  # files, so that no crash between two rounds can undo a charge
            path = run_dir.ledgers_dir / f"{client.id}.json"
            client.ledger = ledger_file.open_file_ledger(client.ledger, path, run=config.config_hash)
    state = None
    if saved is not None:
        state = _restore(federation, saved, observers)
        begin -= float(saved["wall_seconds"])  # of the run before it was stopped
    ledgers, store = [client.ledger for client in federation.clients], UploadStore(run_dir.path)
    last_saved = time.perf_counter()

    def save(state: RunState, least_seconds: float = options.checkpoint_seconds) -> None:
        nonlocal last_saved
        if time.perf_counter() - last_saved < least_seconds:
            return
        content: dict[str, Any] = {
            "done": state.rounds_done,
            "memory": state.server_state,
            "rounds": [asdict(each) for each in state.round_records],
            "clients": {client.id: client.state_dict() for client in federation.clients},
            "wall_seconds": time.perf_counter() - begin,
        }
        for observer in observers:
            content |= observer.state_dict()
        run_dir.save_checkpoint(config, content, ledgers)
        last_saved = time.perf_counter()

    save_uploads = [lambda each: store.save(each.round, each.uploads)] if options.keep_uploads else []
    callbacks = Callbacks(
        on_uploads=[*save_uploads, *(observer.on_uploads for observer in observers)],  # saved before they are shown
        on_round_end=[*options.on_round_end, save],
        stop=options.stop,
    )
    state = simulate(federation, state, callbacks)
    if state.rounds_done < config.run.rounds:
        save(state, least_seconds=0)
        return RunResult(None, state.rounds_done)
    record = finished_record(config, state.round_records, ledgers, time.perf_counter() - begin, federation.description)
    for observer in observers:
        record = observer.add_result(record)
    run_dir.save_ledgers(ledgers)
    run_dir.save_record(record)
    return RunResult(record, state.rounds_done)


def _read_finished(config: RunConfig, run_dir: RunDir, options: RunOptions) -> RunRecord:
    record = run_dir.read_finished(config)
    for factory in options.observers:
        if not factory.is_complete(record):
            record = factory.complete(record, config, run_dir, options.progress)
    return record


def _restore(federation: Federation, saved: Mapping[str, Any], observers: Sequence[RunObserver]) -> RunState:
    unobserved = set(saved) - {"identity", "done", "memory", "rounds", "clients", "wall_seconds"}
    for observer in observers:
        unobserved -= set(observer.state_dict())
        observer.load_state_dict(saved)
    if unobserved:
        key = min(unobserved)
        raise InvalidInput(
            f"this run was started with the {key} {saved[key].get('order', '')}; "
            "resume with the same options, or use vpdr attack afterwards"
        )
    for client in federation.clients:
        client.load_state_dict(saved["clients"][client.id])
    rounds = [from_json(RoundRecord, each, "a round of the checkpoint") for each in saved["rounds"]]
    return RunState(int(saved["done"]), saved["memory"], rounds)


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a comparison and its directory; picklable."""

    scenario: str
    method: str
    config: RunConfig
    out: Path
    observers: tuple[ObserverFactory, ...] = ()  # see RunOptions
    keep_uploads: bool = True


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job and its record; None if it was stopped, or failed for the reason in `error`."""

    job: Job
    record: RunRecord | None
    error: str | None = None


def make_jobs(
    experiment: Experiment, out: Path, *, observers: tuple[ObserverFactory, ...] = (), keep_uploads: bool = True
) -> list[Job]:
    """Every run of an experiment in `out/scenario/method/seed-N`, without the parts that are empty."""
    jobs = []
    for seed in experiment.seeds:
        for method in experiment.method_configs:
            parts = [part for part in (method.scenario, method.method) if part] + [f"seed-{seed}"]
            config, directory = method.with_seed(seed), out.joinpath(*parts)
            jobs.append(Job(method.scenario, method.method, config, directory, observers, keep_uploads))
    return jobs


def sweep(
    jobs: Sequence[Job], *, workers: int, resume: bool, keep_going: bool = False, stop: Callable[[], bool] = never_stop
) -> Iterator[JobResult]:
    """Run all jobs in some processes (one: in this process) and yield each result when it is there.

    With `resume`, runs that have a checkpoint are continued, and finished ones are read. With `keep_going`, a
    run that fails is yielded with its error; otherwise it ends the sweep. `stop` is asked before each job:
    when it is True, running jobs are finished and no other is started.
    """
    run_job = partial(_run_job, resume=resume, keep_going=keep_going)
    if workers <= 1:
        for job in jobs:
            if stop():
                return
            yield run_job(job)
        return
    pending = list(reversed(jobs))
    while pending and not stop():
        lost = yield from _run_parallel(pending, workers, run_job, stop)
        if lost and not keep_going:
            raise InvalidInput("a worker process died, as where memory runs out; try fewer --jobs")
        for job in lost:  # one of them may have killed its process and, with it, the others
            if (yield from _run_parallel([job], 1, run_job, stop)):
                yield JobResult(
                    job, None, "its process died twice, the second time alone; memory may not suffice for it"
                )


def _run_parallel(
    pending: list[Job], workers: int, run_job: Callable[[Job], JobResult], stop: Callable[[], bool]
) -> Generator[JobResult, None, list[Job]]:
    """Yield results as they come; if a process dies, return the jobs that were running."""
    context = multiprocessing.get_context("spawn")  # a forked torch may hang in its threads
    ignore_ctrl_c = (signal.SIGINT, signal.SIG_IGN)  # in workers: the parent stops a comparison between two runs
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=signal.signal, initargs=ignore_ctrl_c)
    running: dict[Future[JobResult], Job] = {}
    try:
        while (pending and not stop()) or running:
            while pending and len(running) < workers and not stop():
                future = pool.submit(run_job, pending[-1])  # it stays pending if the pool is broken
                running[future] = pending.pop()
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                yield future.result()
                del running[future]
    except BrokenExecutor:
        return list(running.values())
    except BaseException:
        for process in list(pool._processes.values()):  # there is no public way to end running jobs
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return []


def _run_job(job: Job, resume: bool, keep_going: bool) -> JobResult:
    """The result of a job; with `keep_going` it may fail, and its traceback is kept until the job succeeds."""
    failure_path = RunDir(job.out).failure_path
    options = RunOptions(observers=job.observers, keep_uploads=job.keep_uploads)
    try:
        record = run_federation(job.config, job.out, resume=resume, options=options).record
    except Exception as error:
        if not keep_going:
            raise
        message = format_error(error)
        with suppress(OSError):  # which may be the very error
            job.out.mkdir(parents=True, exist_ok=True)
            failure_path.write_text(f"{message}\n\n{traceback.format_exc()}")
        return JobResult(job, None, message)
    if keep_going:
        failure_path.unlink(missing_ok=True)
    return JobResult(job, record)
