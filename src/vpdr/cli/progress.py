"""Progress on long work: bars with the time that is left, or a plain line now and then in a pipe or a log."""

import sys
import time
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from vpdr.cli.printing import console
from vpdr.engines.seats import seats_of
from vpdr.engines.simulate import Course
from vpdr.engines.sweep import Done
from vpdr.plan import Plan
from vpdr.rng import Streams

SECONDS = 10.0  # between two plain lines


class Bars:
    """A bar for each thing that takes a while; where no terminal shows them, lines on standard error."""

    def __init__(self, *, show: bool) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        live = show and console.is_terminal
        self._bars = Progress(*columns, console=console, disable=not live, transient=True)
        self._show, self._plain = show, show and not live
        self._tasks: dict[str, TaskID] = {}
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def loading(self, name: str, done: int, total: int) -> None:
        """Pictures or features of one domain, or an attack that takes a while."""
        self._step(name, done, total)

    def tell(self, line: str) -> None:
        """What is worth knowing before it starts."""
        if self._show:
            self._bars.console.print(line)

    def _step(self, name: str, done: int, total: int, label: str | None = None) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total)
        self._bars.update(self._tasks[name], completed=done, description=label or name)
        if time.monotonic() - self._last >= SECONDS:
            self._write(f"{label or name}: {done:,} of {total:,}")

    def _write(self, line: str) -> None:
        """A log keeps it; what is printed as a result stays apart."""
        if self._plain:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
            self._last = time.monotonic()


class RunProgress(Bars):
    """A bar for features that must be computed first, and one for the rounds."""

    def __init__(self, rounds: int, *, show: bool) -> None:
        super().__init__(show=show)
        self._rounds = rounds

    def after_round(self, course: Course) -> None:
        """One round more."""
        self._step("rounds", course.done, self._rounds)


class SweepProgress(Bars):
    """A bar for all runs of a comparison; features are computed once, before the first run."""

    def __init__(self, plan: Plan, runs: int, *, show: bool) -> None:
        super().__init__(show=show)
        self._plan, self._runs, self._done = plan, runs, 0

    def __enter__(self) -> Self:
        super().__enter__()
        seats_of(self._plan, Streams(self._plan.run.seed), self.loading)  # fills the cache for all workers
        self._step("runs", 0, self._runs)
        return self

    def after_run(self, done: Done) -> None:
        """One run more."""
        self._done += 1
        label = " ".join(part for part in (done.job.setting, done.job.method) if part)
        self._step("runs", self._done, self._runs, f"runs ({label})")
