"""Where the budget of a run went, from its ledger."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vpdr.report.figures import canvas, drawn, whole_numbers
from vpdr.report.palette import looks
from vpdr.reproduce.figures.curves import series
from vpdr.reproduce.labels import heading, method_label

if TYPE_CHECKING:
    from vpdr.report.figures import Figure

SELECTION, RELEASE = "#D55E00", "#0072B2"


def parts(line: Mapping[str, Any]) -> dict[str, float]:
    """ε of the selections (they add up) and what is left of the total for the noisy prototypes."""
    selections = sum(each["mean"] for each in series(line, "pure.epsilon").values())
    total = line["metrics"]["epsilon_spent"]["mean"]
    return {"selection": selections, "release": total - selections, "total": total}


def claims(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of each method's budget, and the noise that they buy."""
    told = []
    for line in summary["lines"]:
        if "epsilon_spent" not in line["metrics"]:
            continue
        found = parts(line)
        sigma = [each["mean"] for each in series(line, "gaussian.multiplier").values()]
        noise = f"; {len(sigma)} releases with noise multiplier {sigma[0]:.4g}" if sigma else ""
        told.append(
            {
                "claim": f"{method_label(line['method'])}: ε₁ for selection, ε₂ for release",
                "paper": "schematic",
                "ours": f"{found['selection']:.4f} + {found['release']:.4f} = {found['total']:.4f}{noise}",
                "verdict": "no number in the paper",
            }
        )
    return told


@drawn
def budget(summary: Mapping[str, Any]) -> "Figure":
    """Left: the parts of ε for each method; right: ε spent after each round."""
    lines = [line for line in summary["lines"] if "epsilon_spent" in line["metrics"]]
    figure, grid = canvas(2, 1, (9, 3.0))
    bars, rounds = grid.flat
    styles = looks(summary["methods"], "local")
    for place, line in enumerate(lines):
        found, look, curve = parts(line), styles[line["method"]], series(line, "epsilon")
        bars.barh(place, found["selection"], color=SELECTION)
        bars.barh(place, found["release"], left=found["selection"], color=RELEASE)
        spent = [each["mean"] for each in curve.values()]
        named = {"color": look.colour, "linestyle": look.dash, "label": method_label(line["method"])}
        rounds.step(list(curve), spent, where="post", **named)
    bars.set_yticks(range(len(lines)), [method_label(line["method"]) for line in lines])
    bars.invert_yaxis()
    bars.set(xlabel="ε of one client: selection (ε₁, orange), release (ε₂, blue)")
    rounds.set(xlabel="round", ylabel="ε spent")
    whole_numbers(rounds)
    if lines:
        rounds.legend()
    figure.suptitle(heading(summary), fontsize=10)
    return figure
