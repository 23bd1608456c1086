"""One line of a table: what was measured at the chosen R, the whole grid, and what the paper prints."""

from collections.abc import Mapping, Sequence
from typing import Any

from vpdr.report.summary import interval
from vpdr.reproduce.catalogue import Study, setting
from vpdr.reproduce.cells import Cell
from vpdr.reproduce.choosing import Choice, score
from vpdr.reproduce.paper import printed
from vpdr.reproduce.running import Measured

Line = dict[str, Any]


def line_of(study: Study, cell: Cell, choice: Choice | None, why: str) -> Line:
    """A cell as data; without a choice it says `why` there are no numbers."""
    place = cell.place
    line: Line = {
        "dataset": place.dataset,
        "method": place.method,
        "frameworks": list(dict.fromkeys(each.framework for each in cell.places)),
        "points": list(dict.fromkeys(each.point for each in cell.places)),
        "why": None,
        "metrics": {},
        "paper": printed(study, place),
    }
    if choice is None:
        return line | {"why": why, "radius": None, "grid": []}
    first = next(iter(choice.runs.values()))
    domains = setting()["datasets"][place.dataset]["domains"]
    shown = [name for name in domains if name in first.clients]
    return line | {
        "paper": printed(study, place, shown),
        "metrics": _intervals(choice.runs, [*shown, *(n for n in first.reading if n not in shown)]),
        "radius": choice.radius,
        "chosen_by": choice.by,
        "grid": [_rung(choice, radius) for radius in choice.grid],
        "privacy": first.sentence,
    }


def _intervals(runs: Mapping[int, Measured], names: Sequence[str]) -> dict[str, Any]:
    measured = [run.reading for _, run in sorted(runs.items())]
    shared = [name for name in names if all(name in each for each in measured)]
    return {name: interval([each[name] for each in measured]) for name in shared}


def _rung(choice: Choice, radius: float | None) -> dict[str, Any]:
    """One R of the grid: what it scored where the choice looked, and on the test set."""
    runs = choice.grid[radius]
    validated = all(run.validation is not None for run in runs.values())
    return {
        "radius": radius,
        "chosen": radius == choice.radius,
        "validation": score(runs, "validation", "avg") if validated else None,
        "metrics": _intervals(runs, list(next(iter(runs.values())).reading)),
    }
