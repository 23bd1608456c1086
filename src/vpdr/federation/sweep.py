"""Many runs: every method of an experiment with every seed, in parallel processes."""

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from vpdr.config import Experiment, RunConfig
from vpdr.errors import InvalidInput, format_error
from vpdr.federation.run import ObserverFactory, RunOptions, run_federation
from vpdr.federation.simulate import never_stop
from vpdr.records import RunDir

WORKER_DIED = "its process died twice, the second time alone; memory may not suffice for it"


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
    record: dict[str, Any] | None
    error: str | None = None


JobRunner: TypeAlias = Callable[[Job], JobResult]


def make_jobs(experiment: Experiment, out: Path) -> list[Job]:
    """Every run of an experiment in `out/scenario/method/seed-N`, without the parts that are empty."""
    jobs = []
    for seed in experiment.seeds:
        for method in experiment.method_configs:
            parts = [part for part in (method.scenario, method.method) if part] + [f"seed-{seed}"]
            jobs.append(Job(method.scenario, method.method, method.with_seed(seed), out.joinpath(*parts)))
    return jobs


def sweep(
    jobs: Sequence[Job], *, workers: int, resume: bool, keep_going: bool = False, stop: Callable[[], bool] = never_stop
) -> Iterator[JobResult]:
    """Run all jobs and yield each result when it is there.

    Args:
        jobs: what to run.
        workers: how many processes; with one, jobs run in this process.
        resume: continue runs that have a checkpoint, and read those that are finished.
        keep_going: yield a run that fails with its error and go on; otherwise it ends the sweep.
        stop: asked before each job; when True, running jobs are finished and no other is started.
    """
    run_job = partial(_run_guarded if keep_going else _run_job, resume=resume)
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
                yield JobResult(job, None, WORKER_DIED)


def _run_parallel(
    pending: list[Job], workers: int, run_job: JobRunner, stop: Callable[[], bool]
) -> Generator[JobResult, None, list[Job]]:
    """Yield results as they come; if a process dies, return the jobs that were running."""
    context = multiprocessing.get_context("spawn")  # a forked torch may hang in its threads
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_ignore_sigint)
    running: dict[Future[JobResult], Job] = {}
    try:
        while (pending and not stop()) or running:
            while pending and len(running) < workers and not stop():
                future = pool.submit(run_job, pending[-1])  # it stays pending if the pool is broken
                running[future] = pending.pop()
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                yield future.result()
                del running[future]
    except BrokenProcessPool:
        return list(running.values())
    except BaseException:
        for process in list(pool._processes.values()):  # there is no public way to end running jobs
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return []


def _run_guarded(job: Job, resume: bool) -> JobResult:
    """The result of a job that may fail; its traceback stays in the run's directory until it succeeds."""
    failure_path = RunDir(job.out).failure_path
    try:
        result = _run_job(job, resume)
    except Exception as error:  # noqa: BLE001 - whatever ends one run, the others go on
        message = format_error(error)
        with suppress(OSError):  # which may be the very error
            job.out.mkdir(parents=True, exist_ok=True)
            failure_path.write_text(f"{message}\n\n{traceback.format_exc()}")
        return JobResult(job, None, message)
    failure_path.unlink(missing_ok=True)
    return result


def _run_job(job: Job, resume: bool) -> JobResult:
    options = RunOptions(observers=job.observers, keep_uploads=job.keep_uploads)
    return JobResult(job, run_federation(job.config, job.out, resume=resume, options=options).record)


def _ignore_sigint() -> None:
    """Leave Ctrl-C to the parent process, which stops a comparison between two runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
