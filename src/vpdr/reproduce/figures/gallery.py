"""Which picture belongs to which kind of study, and what it adds to the summary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpdr.plan import Plan
from vpdr.reproduce.catalogue import Study
from vpdr.reproduce.cells import Cell
from vpdr.reproduce.drawing import dots
from vpdr.reproduce.figures import budget, correlation, curves, hyper, timing, tsne
from vpdr.reproduce.figures.parts import extra_parts
from vpdr.reproduce.figures.replay import Album, features_of

if TYPE_CHECKING:
    from vpdr.report.figures import Figure

Summary = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a picture may look at beyond the summary."""

    study: Study
    cells: Sequence[Cell]
    seed: int
    runs: Path

    def plan(self, method: str) -> Plan:
        """The first plan of a method that could run, at its first R."""
        cell = next(cell for cell in self.cells if cell.place.method == method and cell.radii)
        return cell.plan(cell.radii[0], self.seed)

    def album(self, *, rounds: Callable[[Plan], Sequence[int]], test: bool) -> Album:
        """Features of the headline method's run at some rounds."""
        plan = self.plan(self.study.headline)
        return features_of(plan, rounds(plan), test=test, folder=self.runs / plan.identity)


def draw(scene: Scene, summary: Summary) -> "Figure":
    """The study's picture; claims and data that it rests on go into the summary."""
    kind = scene.study.kind
    if kind in _OF_ONE_RUN and not _measured(summary, scene.study.headline):
        return dots(summary)
    return _PICTURES[kind](scene, summary)


def _measured(summary: Summary, method: str) -> bool:
    return any(line["method"] == method and line["metrics"] for line in summary["lines"])


def _table(_: Scene, summary: Summary) -> "Figure":
    return dots(summary)


def _curves(scene: Scene, summary: Summary) -> "Figure":
    summary["claims"] = curves.claims(summary, scene.study.headline, scene.study.base)
    return curves.curves(summary)


def _hyper(scene: Scene, summary: Summary) -> "Figure":
    summary["claims"] = hyper.claims(scene.study, summary)
    return hyper.hyper(summary, scene.study.headline)


def _time(scene: Scene, summary: Summary) -> "Figure":
    parts = extra_parts(scene.plan(scene.study.headline))
    summary["parts_ms"] = parts
    summary["claims"] = timing.claims(summary, parts, scene.study.base)
    return timing.bars(summary)


def _time_bars(scene: Scene, summary: Summary) -> "Figure":
    summary["claims"] = timing.mean_claims(summary, scene.study.headline, scene.study.base)
    return timing.bars(summary)


def _budget(_: Scene, summary: Summary) -> "Figure":
    summary["claims"] = budget.claims(summary)
    return budget.budget(summary)


def _correlation(scene: Scene, summary: Summary) -> "Figure":
    album = scene.album(rounds=lambda plan: (0, plan.run.rounds), test=False)
    found = correlation.scatters(album, scene.plan(scene.study.headline).mechanism.cap, scene.seed)
    summary["claims"] = correlation.claims(summary, found)
    summary["scatters"] = found
    return correlation.correlation(summary, found)


def _tsne(scene: Scene, summary: Summary) -> "Figure":
    album = scene.album(rounds=lambda plan: tuple(dict.fromkeys((1, plan.run.rounds))), test=True)
    found = tsne.maps(album, scene.seed)
    summary["maps"] = found
    return tsne.tsne(summary, found, scene.study.headline)


_PICTURES: dict[str, Callable[[Scene, Summary], "Figure"]] = {
    "table": _table,
    "curves": _curves,
    "sensitivity": _hyper,
    "time": _time,
    "time-bars": _time_bars,
    "budget": _budget,
    "correlation": _correlation,
    "tsne": _tsne,
}
_OF_ONE_RUN = ("correlation", "tsne")  # the headline's run is played again: it must have come to its end
