"""The whole grid as raw numbers: one row for each line and R."""

from collections.abc import Mapping
from typing import Any

from vpdr.records.store import rows_as_csv

PARTS = ("mean", "low", "high", "std")


def sheet_text(summary: Mapping[str, Any]) -> str:
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
    return rows_as_csv(rows)


def _rung(rung: Mapping[str, Any], line: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {f"{name}.{part}": found[part] for name, found in rung["metrics"].items() for part in PARTS}
    told = {"radius": rung["radius"], "chosen": rung["chosen"], "validation": rung["validation"]}
    judged = {"verdict": line["verdict"], **_paper(line)} if rung["chosen"] else {}
    return {**told, **judged, **numbers}


def _paper(line: Mapping[str, Any]) -> dict[str, Any]:
    return {f"paper.{name}": value for name, value in line["paper"].items()}
