"""The whole grid as raw numbers: one row for each line and R."""

import csv
import io
from collections.abc import Mapping
from typing import Any

PARTS = ("mean", "low", "high", "std")


def csv_text(summary: Mapping[str, Any]) -> str:
    """All that was measured at every R; the paper's number and the verdict stand at the chosen one."""
    rows = []
    for line in summary["lines"]:
        fixed = {
            "smoke": summary["smoke"],
            "dataset": line["dataset"],
            "framework": "+".join(line["frameworks"]),
            "method": line["method"],
            "point": "+".join(line["points"]),
        }
        rows += [{**fixed, **_rung(rung, line)} for rung in line["grid"]] or [
            {**fixed, "verdict": line["verdict"], **_paper(line)}
        ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _rung(rung: Mapping[str, Any], line: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {f"{name}.{part}": found[part] for name, found in rung["metrics"].items() for part in PARTS}
    told = {"radius": rung["radius"], "chosen": rung["chosen"], "validation": rung["validation"]}
    judged = {"verdict": line["verdict"], **_paper(line)} if rung["chosen"] else {}
    return {**told, **judged, **numbers}


def _paper(line: Mapping[str, Any]) -> dict[str, Any]:
    return {f"paper.{name}": value for name, value in line["paper"].items()}
