"""Progress on long work, with the time that is left."""

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from vpdr.cli.printing import console
from vpdr.engines.seats import seats_of
from vpdr.engines.simulate import Course
from vpdr.engines.sweep import Done
from vpdr.plan import Plan
from vpdr.rng import Streams


def _bars(show: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not (show and console.is_terminal),
        transient=True,
    )


class RunProgress:
    """A bar for features that must be computed first, and one for the rounds."""

    def __init__(self, rounds: int, *, show: bool) -> None:
        self._bars, self._rounds, self._show = _bars(show), rounds, show
        self._loading: dict[str, TaskID] = {}
        self._running: TaskID | None = None

    def __enter__(self) -> "RunProgress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def loading(self, name: str, done: int, total: int) -> None:
        """Pictures or features of one domain, or an attack that takes a while."""
        if name not in self._loading:
            self._loading[name] = self._bars.add_task(name, total=total)
        self._bars.update(self._loading[name], completed=done)

    def tell(self, line: str) -> None:
        """What is worth knowing before it starts."""
        if self._show:
            self._bars.console.print(line)

    def after_round(self, course: Course) -> None:
        """One round more."""
        if self._running is None:
            self._running = self._bars.add_task("rounds", total=self._rounds)
        self._bars.update(self._running, completed=course.done)


class SweepProgress(RunProgress):
    """A bar for all runs of a comparison; features are computed once, before the first run."""

    def __init__(self, plan: Plan, runs: int, *, show: bool) -> None:
        super().__init__(runs, show=show)
        self._plan, self._runs, self._done = plan, runs, 0

    def __enter__(self) -> "SweepProgress":
        super().__enter__()
        seats_of(self._plan, Streams(self._plan.run.seed), self.loading)  # fills the cache for all workers
        self._all = self._bars.add_task("runs", total=self._runs)
        return self

    def after_run(self, done: Done) -> None:
        """One run more."""
        self._done += 1
        label = " ".join(part for part in (done.job.setting, done.job.method) if part)
        self._bars.update(self._all, completed=self._done, description=f"runs ({label})")
