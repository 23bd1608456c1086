"""Many runs: arms times seeds, side by side on the cores of this machine."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.attacks import AttackOrder
from vpdr.engines.runner import Company, never, run_plan
from vpdr.plan import Experiment, Plan


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a comparison and its folder."""

    setting: str
    method: str
    plan: Plan
    out: Path
    attacks: AttackOrder | None = None
    keep_uploads: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """A job with its record; None if it was stopped."""

    job: Job
    record: dict[str, Any] | None


def jobs_of(experiment: Experiment, out: Path) -> list[Job]:
    """Every run with a folder of its own: setting/method/seed, leaving out what there is only one of."""
    jobs = []
    for seed in experiment.seeds:
        for arm in experiment.arms:
            parts = [part for part in (arm.setting, arm.method) if part] + [f"seed-{seed}"]
            jobs.append(Job(arm.setting, arm.method, arm.seeded(seed), out.joinpath(*parts)))
    return jobs


def sweep(
    jobs: Sequence[Job], *, workers: int, resume: bool, stop: Callable[[], bool] = never
) -> Iterator[Done]:
    """Run all jobs, yielding each when it is done; when asked to stop, what runs is finished first."""
    if workers <= 1:
        for job in jobs:
            if stop():
                return
            yield _work(job, resume)
        return
    context = multiprocessing.get_context("spawn")  # a forked torch may hang in its threads
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_deaf)
    try:
        yield from _shared_out(pool, list(reversed(jobs)), (workers, resume, stop))
    except BaseException:
        for process in list(pool._processes.values()):  # no public way to end what is under way
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _shared_out(
    pool: ProcessPoolExecutor, waiting: list[Job], how: tuple[int, bool, Callable[[], bool]]
) -> Iterator[Done]:
    """Keep every worker busy, and give up each result as soon as it is there."""
    workers, resume, stop = how
    running: set[Future[Done]] = set()
    while (waiting and not stop()) or running:
        while waiting and len(running) < workers and not stop():
            running.add(pool.submit(_work, waiting.pop(), resume))
        finished, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
        for future in finished:
            yield future.result()


def _work(job: Job, resume: bool) -> Done:
    company = Company(attacks=job.attacks, keep_uploads=job.keep_uploads)
    outcome = run_plan(job.plan, job.out, resume=resume, company=company)
    return Done(job, outcome.record)


def _deaf() -> None:
    """Leave Ctrl-C to the parent, which ends a comparison between two runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
