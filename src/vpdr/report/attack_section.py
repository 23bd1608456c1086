"""What attacks found, for the page of one run."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vpdr.report.figures import INK, canvas, drawn, inline_svg
from vpdr.report.markup import Html, bullets, grid, picture, section, tag
from vpdr.report.numbers import DASH
from vpdr.report.palette import COLOURS
from vpdr.report.series import Record

if TYPE_CHECKING:
    from vpdr.report.figures import Figure

TITLES = {"mia": "Membership inference", "fsh": "Reconstruction (feature-space hijacking)"}
METRICS = {
    "auc": "ROC-AUC",
    "tpr_at_1fpr": "TPR at 1 % FPR",
    "tpr_at_1fpr_nearest": "TPR nearest 1 % FPR",
    "advantage": "Advantage",
    "f1": "F1",
    "cos": "Cosine to the released prototype",
    "cos_clean": "Cosine to the clean prototype",
    "cffd": "cFFD",
    "cffd_pooled": "cFFD, all classes pooled",
    "top1": "Top-1 hit",
}
PHI = {
    "client": "The adversary has the client's own encoder, which never leaves the client: the paper's "
    "assumption, stronger than any server.",
    "initial": "The adversary has the path that everybody knows: what a server has.",
}
CHANCE = (
    "Chance is what the same scores give under permuted labels (membership), or what the reconstructions "
    "give if each is taken for another class's. The interval is how far chance alone scatters around it."
)
HEADER = ("Metric", "Mean over rounds", "Std", "Chance", "Above chance", "95 % interval")


def attack_section(record: Record, sheets: Sequence[bytes]) -> Html:
    """Tables, ROC curves and reconstructions; nothing where nothing was attacked."""
    attacks = record.get("attacks", {})
    if not attacks:
        return Html("")
    parts: list[Html] = [tag("p", CHANCE, class_="small")]
    for kind, found in attacks.items():
        rounds = ", ".join(str(each["round"]) for each in found["rounds"])
        parts += [tag("h3", TITLES[kind]), tag("p", f"{PHI[found['phi']]} Rounds {rounds}.")]
        parts += [grid(HEADER, rows(found)), bullets(notes(found))]
        if found.get("roc"):
            caption = (
                "ROC of the membership attackers: all classes of a client, mean over clients and rounds."
            )
            parts.append(picture(inline_svg(roc(found), "roc", caption), caption))
    if "fsh" in attacks and sheets:
        caption = (
            "Reconstructions of the last attacked round: a row for each client, a column for each class."
        )
        parts.append(tag("figure", _image(sheets[-1], caption), tag("figcaption", caption)))
    return section("attacks", "Attacks", *parts)


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """Every metric of the attack, then the stronger attackers and the pooled reading."""
    readings = {"": found["summary"], "all classes pooled": found.get("pooled", {})}
    readings |= {name: each["summary"] for name, each in found.get("stronger", {}).items()}
    out = []
    for name, values in readings.items():
        for metric, value in values.items():
            reach = [_number(value[end]) for end in ("low", "high") if end in value]
            told = [_number(value[key]) for key in ("mean", "std", "null", "corrected")]
            label = f"{METRICS[metric]}{f' ({name})' * bool(name)}"
            out.append([label, *told, " to ".join(reach) or DASH])
    return out


def notes(found: Mapping[str, Any]) -> list[str]:
    """Where a metric means nothing."""
    return [f"{METRICS[m]}: {v['note']}." for m, v in found["summary"].items() if "note" in v]


@drawn
def roc(found: Mapping[str, Any]) -> "Figure":
    """The mean ROC curve of each attacker."""
    figure, axes = canvas(1, 1, (4.4, 4))
    curves = {"distance": found["roc"]} | {n: each["roc"] for n, each in found["stronger"].items()}
    for colour, (name, heights) in zip(COLOURS, curves.items(), strict=False):
        grid_points = [index / (len(heights) - 1) for index in range(len(heights))]
        axes[0, 0].plot(grid_points, heights, color=colour, label=name)
    axes[0, 0].plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle="--", label="chance")
    axes[0, 0].set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1))
    axes[0, 0].legend(loc="lower right")
    return figure


def _image(content: bytes, description: str) -> Html:
    """A picture inside the page, so that the page needs no other file."""
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return tag("img", src=source, alt=description, style="max-width: 100%")


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
