"""Feature norms and the gap between teacher and student, round by round."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vpdr.report.figures import INK, canvas, drawn, whole_numbers
from vpdr.report.palette import looks
from vpdr.reproduce.labels import heading, method_label
from vpdr.reproduce.numbers import ranged
from vpdr.reproduce.verdicts import DIFFERS, IN_SIGN, NOT_JUDGED, zero_words

if TYPE_CHECKING:
    from vpdr.report.figures import Axes, Figure

PANELS = {
    "norm_mean": "mean feature norm before clipping",
    "teacher_gap": "mean |teacher − student| per logit",
}


def claims(summary: dict[str, Any], headline: str, base: str) -> list[dict[str, Any]]:
    """The paper's reading of its own curves: with DCR the norms stay near R."""
    found = [pair for pair in summary["pairs"] if (pair["first"], pair["second"]) == (headline, base)]
    told = []
    for pair in found:
        ours = pair["ours"]
        words = f"{IN_SIGN if ours['mean'] < 0 else DIFFERS} ({zero_words(ours)})"
        names = f"{method_label(headline)} − {method_label(base)}"
        told.append(
            {
                "claim": f"norms are nearer to R: |norm − R| / R, {names}",
                "paper": "below 0",
                "ours": ranged(ours, summary["unit"]),
                "verdict": NOT_JUDGED if summary["smoke"] else words,
            }
        )
    return told


@drawn
def curves(summary: dict[str, Any]) -> "Figure":
    """Both quantities for each arm, mean over clients and seeds with its interval; R is dashed."""
    figure, grid = canvas(2, 1, (9, 3.4))
    styles = looks(summary["methods"], "local")
    for axes, (name, words) in zip(grid.flat, PANELS.items(), strict=True):
        for line in summary["lines"]:
            _curve(axes, line, name, styles[line["method"]].colour)
        axes.set(xlabel="round", title=words)
        whole_numbers(axes)
    for radius in summary["radii"]:
        grid[0, 0].axhline(radius, color=INK, linewidth=1, linestyle="--", label=f"R = {radius:g}")
    grid[0, 0].legend()
    figure.suptitle(heading(summary), fontsize=10)
    return figure


def _curve(axes: "Axes", line: Mapping[str, Any], name: str, colour: str) -> None:
    found = series(line, name)
    if not found:
        return
    axes.plot(
        list(found),
        [each["mean"] for each in found.values()],
        color=colour,
        label=method_label(line["method"]),
    )
    if all(each["low"] is not None for each in found.values()):
        low, high = ([each[side] for each in found.values()] for side in ("low", "high"))
        axes.fill_between(list(found), low, high, color=colour, alpha=0.15, linewidth=0)


def series(line: Mapping[str, Any], name: str) -> dict[int, Mapping[str, Any]]:
    """A quantity by round: readings named `name@round`."""
    marks = {
        key.partition("@")[2]: value for key, value in line["metrics"].items() if key.startswith(f"{name}@")
    }
    return {int(mark): value for mark, value in marks.items()}
