"""What attacks found, as tables for people."""

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from vpdr.cli.printing import console

NAMES = {
    "auc": "ROC-AUC",
    "tpr_at_1fpr": "TPR at 1 % FPR",
    "tpr_at_1fpr_nearest": "TPR nearest 1 % FPR",
    "advantage": "advantage",
    "f1": "F1",
    "cos": "cosine to the released",
    "cos_clean": "cosine to the clean",
    "cffd": "cFFD",
    "cffd_pooled": "cFFD, pooled",
    "top1": "Top-1 hit",
}


def tell_attacks(attacks: Mapping[str, Any]) -> None:
    """One table an attack: value and spread over rounds, what chance gives, and the difference."""
    for kind, found in attacks.items():
        table = Table(title=title(kind, found), title_justify="left", box=None, pad_edge=False)
        for heading in ("metric", "mean", "std", "chance", "above chance", "95 % interval"):
            table.add_column(heading)
        notes = []
        for name, rows in readings(found).items():
            for metric, value in rows.items():
                label = f"{NAMES[metric]}{f', {name}' * bool(name)}"
                table.add_row(label, *cells(value))
                notes += [f"{NAMES[metric]}: {value['note']}"] if "note" in value and not name else []
        console.print(table)
        for note in notes:
            console.print(f"  - {note}")


def title(kind: str, found: Mapping[str, Any]) -> str:
    """Which attack, with which encoder, over how many rounds."""
    rounds = len(found["rounds"])
    return f"{kind}, phi = {found['phi']}, {rounds} round{'s'[: rounds != 1]}, {found['seconds']:.1f} s"


def readings(found: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The attack itself, and the AUC of those who are stronger."""
    rows: dict[str, Mapping[str, Any]] = {"": found["summary"]}
    if "pooled" in found:
        rows["pooled"] = {m: found["pooled"][m] for m in ("auc", "tpr_at_1fpr") if m in found["pooled"]}
    for name, each in found.get("stronger", {}).items():
        rows[name] = {m: each["summary"][m] for m in ("auc", "advantage") if m in each["summary"]}
    return rows


def cells(value: Mapping[str, Any]) -> list[str]:
    """Numbers of one metric."""
    reach = [value.get("low"), value.get("high")]
    told = [_number(value[key]) for key in ("mean", "std", "null", "corrected")]
    return [*told, "-" if None in reach else f"{_number(reach[0])} .. {_number(reach[1])}"]


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
