"""What the commands share: options, the console, JSON, and progress bars.

Progress classes only display numbers that they are given: they load no data and build no clients.
"""

import os
import sys
import time
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from vpdr.federation import run
from vpdr.federation.rounds import RunState
from vpdr.io import json_bytes, json_safe
from vpdr.records import RoundRecord, final_accuracies

DEFAULT_WIDTH = 130  # characters per line if neither a terminal nor COLUMNS gives a width
SECONDS_BETWEEN_LINES = 10.0  # between two lines of progress in a pipe or a log

SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting. May be repeated.")
]
AttackRoundsOption = Annotated[str | None, typer.Option(help="Rounds to attack, such as 1,5,20; all if not given.")]
AttackEncoderOption = Annotated[
    str, typer.Option(help="The adversary's encoder: client (as in the paper) or initial (what a server has).")
]
AttackStepsOption = Annotated[int, typer.Option(help="Largest number of steps of a reconstruction.")]
AttackDeviceOption = Annotated[str, typer.Option(help="Device of the reconstructions: cpu or cuda.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print no progress and no table.")]


class PipeSafeConsole(Console):
    """A console without markup, which raises BrokenPipeError instead of ending the program."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # `vpdr.cli` handles it


_WIDTH_IS_KNOWN = sys.stdout.isatty() or "COLUMNS" in os.environ
console = PipeSafeConsole(soft_wrap=True, highlight=False, width=None if _WIDTH_IS_KNOWN else DEFAULT_WIDTH)


def print_json(content: object, **more: object) -> None:
    """Print one JSON object, formatted as in the files, with further entries at its end."""
    sys.stdout.write(json_bytes({**json_safe(content), **more}).decode())


class ProgressBars:
    """Progress bars on a terminal; otherwise a line on standard error every few seconds."""

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

    def print_line(self, line: str) -> None:
        """Print a message above the bars."""
        if self._show:
            self._bars.console.print(line)

    def update(self, name: str, done: int, total: int, label: str | None = None) -> None:
        """Show how much of a task is done; a new name gets a bar of its own."""
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total)
        self._bars.update(self._tasks[name], completed=done, description=label or name)
        if time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._write_plain_line(f"{label or name}: {done:,} of {total:,}")

    def _write_plain_line(self, line: str) -> None:
        if self._plain:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
            self._last = time.monotonic()


def own_accuracy(round_record: RoundRecord) -> float | None:
    """The mean over clients of the framework's accuracy on their own classes; None if it was not measured."""
    predictors = final_accuracies(round_record).get("own", {})
    found = predictors.get("framework") or predictors.get("head")
    return None if found is None else found.average


class RunProgress(ProgressBars):
    """Progress of one run: features that are computed first, then the rounds."""

    def __init__(self, rounds: int, *, show: bool) -> None:
        super().__init__(show=show)
        self._rounds, self._accuracy = rounds, ""

    def after_round(self, state: RunState) -> None:
        """Show the round, and the accuracy that was measured last."""
        accuracy = own_accuracy(state.round_records[-1])
        self._accuracy = self._accuracy if accuracy is None else f", accuracy {100 * accuracy:.1f} %"
        self.update("rounds", state.rounds_done, self._rounds, f"rounds{self._accuracy}")


class SweepProgress(ProgressBars):
    """Progress of a comparison: features that are computed first, then the runs."""

    def __init__(self, runs: int, *, show: bool) -> None:
        super().__init__(show=show)
        self._runs, self._done = runs, 0
        self.num_finished = 0  # runs with a record; the others were stopped

    def start_runs(self) -> None:
        """Show the bar of the runs before the first one is done."""
        self.update("runs", 0, self._runs)

    def after_run(self, result: run.JobResult) -> None:
        self._done += 1
        self.num_finished += result.record is not None
        label = " ".join(part for part in (result.job.scenario, result.job.method) if part)
        self.update("runs", self._done, self._runs, f"runs ({label})")
