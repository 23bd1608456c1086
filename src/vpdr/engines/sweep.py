"""Many runs: arms times seeds, side by side on the cores of this machine."""

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

from vpdr.attacks import AttackOrder
from vpdr.engines.runner import Company, never, run_plan
from vpdr.errors import InvalidInput, one_line
from vpdr.plan import Experiment, Plan
from vpdr.records import RunFolder

DIED = "its process died twice, the second time alone; memory may not suffice for it"


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
    """A job with its record; None if it was stopped, or failed for the reason in `trouble`."""

    job: Job
    record: dict[str, Any] | None
    trouble: str | None = None


Work: TypeAlias = Callable[[Job], Done]


def jobs_of(experiment: Experiment, out: Path) -> list[Job]:
    """Every run with a folder of its own: setting/method/seed, leaving out what there is only one of."""
    jobs = []
    for seed in experiment.seeds:
        for arm in experiment.arms:
            parts = [part for part in (arm.setting, arm.method) if part] + [f"seed-{seed}"]
            jobs.append(Job(arm.setting, arm.method, arm.seeded(seed), out.joinpath(*parts)))
    return jobs


def sweep(
    jobs: Sequence[Job],
    *,
    workers: int,
    resume: bool,
    keep_going: bool = False,
    stop: Callable[[], bool] = never,
) -> Iterator[Done]:
    """Run all jobs, yielding each when it is done; when asked to stop, what runs is finished first.

    A run that fails ends the sweep; with `keep_going` it is yielded with its trouble, and the others go on.
    """
    work = partial(_tried if keep_going else _work, resume=resume)
    if workers <= 1:
        for job in jobs:
            if stop():
                return
            yield work(job)
        return
    waiting = list(reversed(jobs))
    while waiting and not stop():
        lost = yield from _side_by_side(waiting, workers, work, stop)
        if lost and not keep_going:
            raise InvalidInput("a worker process died, as where memory runs out; try fewer --jobs")
        for job in lost:  # one of them may have ended its process and, with it, those of the others
            if (yield from _side_by_side([job], 1, work, stop)):
                yield Done(job, None, DIED)


def _side_by_side(
    waiting: list[Job], workers: int, work: Work, stop: Callable[[], bool]
) -> Generator[Done, None, list[Job]]:
    """Give up each result as soon as it is there; what was under way when a process died is returned."""
    context = multiprocessing.get_context("spawn")  # a forked torch may hang in its threads
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_deaf)
    running: dict[Future[Done], Job] = {}
    try:
        while (waiting and not stop()) or running:
            while waiting and len(running) < workers and not stop():
                future = pool.submit(work, waiting[-1])  # it stays in line where the pool is broken
                running[future] = waiting.pop()
            for future in wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done:
                yield future.result()
                del running[future]
    except BrokenProcessPool:
        return list(running.values())
    except BaseException:
        for process in list(pool._processes.values()):  # no public way to end what is under way
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return []


def _tried(job: Job, resume: bool) -> Done:
    """The job's record, or what ended it; the whole story is kept in its folder until it succeeds."""
    file = RunFolder(job.out).failure
    try:
        done = _work(job, resume)
    except Exception as error:  # noqa: BLE001 - whatever ends one run, the others go on
        trouble = one_line(error)
        with suppress(OSError):  # it may be the very trouble
            job.out.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{trouble}\n\n{traceback.format_exc()}")
        return Done(job, None, trouble)
    file.unlink(missing_ok=True)
    return done


def _work(job: Job, resume: bool) -> Done:
    company = Company(attacks=job.attacks, keep_uploads=job.keep_uploads)
    outcome = run_plan(job.plan, job.out, resume=resume, company=company)
    return Done(job, outcome.record)


def _deaf() -> None:
    """Leave Ctrl-C to the parent, which ends a comparison between two runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
