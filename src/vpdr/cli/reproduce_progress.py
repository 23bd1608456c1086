"""How far a reproduction is: a bar on a terminal, else one plain line for each run."""

import sys
from typing import Any

from rich.progress import TaskID

from vpdr.cli.printing import console
from vpdr.cli.progress import RunProgress
from vpdr.engines.sweep import Done, Job
from vpdr.records import RunFolder
from vpdr.reproduce.catalogue import Study
from vpdr.reproduce.cells import clips


class ManyRuns(RunProgress):
    """A bar for all runs of a reproduction, those that were there before included."""

    def __init__(self, study: Study, runs: int, *, show: bool) -> None:
        super().__init__(runs, show=show)
        self._study, self._runs, self._done = study, runs, 0
        self._plain = show and not console.is_terminal
        self._bar: TaskID | None = None

    def __enter__(self) -> "ManyRuns":
        super().__enter__()
        return self

    def there(self, count: int) -> None:
        """Runs that need not be made again."""
        self._done = count
        if count:
            self._step("runs")
            self._write(f"{count} of {self._runs} runs were there already")

    def after_run(self, done: Done) -> None:
        """One run more; a stopped one is not finished, and one that failed is told at once."""
        if done.trouble is not None:
            self._write(f"failed: {failure_words(self._study, done)}")
        if done.record is None:
            return
        self._done += 1
        self._step(f"runs ({done.job.setting} {done.job.method})")
        words, seconds = run_words(self._study, done.job), done.record["wall_seconds"]
        self._write(f"{self._done} of {self._runs} runs: {words}, {seconds:.1f} s")

    def _step(self, label: str) -> None:
        if self._bar is None:
            self._bar = self._bars.add_task("runs", total=self._runs)
        self._bars.update(self._bar, completed=self._done, description=label)

    def _write(self, line: str) -> None:
        """A log keeps it; what is printed as a result stays apart."""
        if self._plain:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


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
