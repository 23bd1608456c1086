"""How far a reproduction is: a bar on a terminal, else one plain line for each run."""

from typing import Any

from vpdr.cli.progress import Bars
from vpdr.engines.sweep import Done, Job
from vpdr.records import RunFolder
from vpdr.reproduce.catalogue import Study
from vpdr.reproduce.cells import clips


class ManyRuns(Bars):
    """A bar for all runs of a reproduction, those that were there before included."""

    def __init__(self, study: Study, runs: int, *, show: bool) -> None:
        super().__init__(show=show)
        self._study, self._runs, self._done = study, runs, 0

    def there(self, count: int) -> None:
        """Runs that need not be made again."""
        self._done = count
        if count:
            self._write(f"{count} of {self._runs} runs were there already")
            self._step("runs", count, self._runs)

    def after_run(self, done: Done) -> None:
        """One run more; a stopped one is not finished, and one that failed is told at once."""
        if done.trouble is not None:
            self._write(f"failed: {failure_words(self._study, done)}")
        if done.record is None:
            return
        self._done += 1
        words, seconds = run_words(self._study, done.job), done.record["wall_seconds"]
        self._write(f"{self._done} of {self._runs} runs: {words}, {seconds:.1f} s")
        self._step("runs", self._done, self._runs, f"runs ({done.job.setting} {done.job.method})")


def run_words(study: Study, job: Job) -> str:
    """One run in words: `ablation office_caltech vpdr R=5 seed 1`."""
    plan = job.plan
    framework = [plan.framework.kind] if len(study.frameworks) > 1 else []
    radius = [f"R={plan.mechanism.clip_norm:g}"] if clips(plan) else []
    return " ".join([study.id, job.setting, *framework, job.method, *radius, f"seed {plan.run.seed}"])


def failure(done: Done) -> dict[str, Any]:
    """One run that failed, as data."""
    job = done.job
    named = {"dataset": job.setting, "method": job.method, "seed": job.plan.run.seed}
    return {"run": job.plan.identity, **named, "why": done.trouble, "folder": str(job.out)}


def failure_words(study: Study, done: Done) -> str:
    """Which run failed, why, and where the whole story is."""
    story = RunFolder(done.job.out).failure
    where = f" (see {story})" if story.exists() else ""
    return f"{run_words(study, done.job)}: {done.trouble}{where}"
