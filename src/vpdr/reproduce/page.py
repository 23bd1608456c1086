"""The page of a table: in the paper's layout, with the comparison, the differences and the choice of R."""

from collections.abc import Mapping, Sequence
from typing import Any

from vpdr.report.numbers import DASH, seeds_text
from vpdr.reproduce.labels import (
    framework_label,
    framework_name,
    heading,
    label_heads,
    labels,
    measure_heads,
    measures,
    method_label,
)
from vpdr.reproduce.numbers import measured, number, ranged, signed, table

Summary = Mapping[str, Any]
Line = Mapping[str, Any]
SMOKE = (
    "SMOKE: few rounds, few seeds, small data; it shows that the command works, and no number is a result."
)
TUNING = "R was chosen on private data; neither the paper nor we account for that in ε."


def page(summary: Summary, picture: str | None = None) -> str:
    """Markdown that stands on its own."""
    parts = [f"# {heading(summary)}\n", *_opening(summary)]
    if picture is not None:
        parts.append(f"![{summary['title']}]({picture})\n")
    parts += _claims(summary)
    for dataset in summary["datasets"]:
        lines = [line for line in summary["lines"] if line["dataset"] == dataset]
        parts.append(f"## {summary['datasets'][dataset]['title']}\n")
        if not any(line["metrics"] or line["paper"] for line in lines):
            parts.append(f"{len(lines)} rows: {', '.join({line['verdict']: None for line in lines})}.\n")
            continue
        parts += [_layout(summary, lines), "### Beside the paper\n", _comparison(summary, lines)]
    parts += [*_differences(summary), *_grid(summary), *_guarantees(summary)]
    return "\n".join(part for part in parts if part)


def _opening(summary: Summary) -> list[str]:
    seeds = summary["seeds"]
    told = [SMOKE] if summary["smoke"] else []
    told.append(f"Seeds {seeds_text(seeds)}; ± is half of a 95 % t-interval over seeds.")
    for content in summary["datasets"].values():
        if content["given"] and content["backbone"] != content["paper_backbone"]:
            ours, theirs = content["backbone"], content["paper_backbone"]
            told.append(f"{content['title']}: {ours} instead of the paper's {theirs}.")
    if summary["settings"]:
        told.append(f"Settings changed by hand: {', '.join(summary['settings'])}.")
    told += [f"Verdicts. {summary['rule']}.", *summary["notes"]]
    return [f"{text}\n" for text in told]


def _claims(summary: Summary) -> list[str]:
    if not summary.get("claims"):
        return []
    rows = [[each["claim"], each["paper"], each["ours"], each["verdict"]] for each in summary["claims"]]
    return ["## What the paper says of it\n", table(["claim", "paper", "ours", "verdict"], rows, texts=4)]


def _layout(summary: Summary, lines: Sequence[Line]) -> str:
    """The paper's layout: methods down, domains or points across; the paper's number in brackets."""
    if summary["columns"] == "points":
        return _by_points(summary, lines)
    names = measures(lines)
    rows = [[*labels(summary, line), *(_both(summary, line, name) for name in names)] for line in lines]
    heads = [*label_heads(summary), *measure_heads(names)]
    return table(heads, rows, texts=len(label_heads(summary)))


def _by_points(summary: Summary, lines: Sequence[Line]) -> str:
    points = list(dict.fromkeys(point for line in lines for point in line["points"]))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for line in lines:
        cells = rows.setdefault((framework_label(summary, line), method_label(line["method"])), {})
        cells |= dict.fromkeys(line["points"], _both(summary, line, summary["metric"]))
    body = [[*key, *(cells.get(point, DASH) for point in points)] for key, cells in rows.items()]
    return table(["framework", "method", *points], body, texts=2)


def _both(summary: Summary, line: Line, name: str) -> str:
    ours, theirs = line["metrics"].get(name), line["paper"].get(name)
    text = measured(ours, summary["unit"]) if ours else DASH
    return text if theirs is None else f"{text} ({number(theirs, summary['unit'])})"


def _comparison(summary: Summary, lines: Sequence[Line]) -> str:
    unit, metric = summary["unit"], summary["metric"]
    heads = [*label_heads(summary), "R", f"paper {metric}", "ours", "std over seeds", "difference", "verdict"]
    rows = []
    for line in lines:
        ours = line["metrics"].get(metric)
        rows.append([
            *labels(summary, line),
            DASH if line["radius"] is None else f"{line['radius']:g}",
            number(line["paper"].get(metric), unit),
            measured(ours, unit),
            number(ours["std"] if ours else None, unit),
            signed(line["difference"], unit),
            line["verdict"],
        ])  # fmt: skip
    return table(heads, rows, texts=len(label_heads(summary)))


def _differences(summary: Summary) -> list[str]:
    if not summary["pairs"]:
        return []
    rows = []
    for pair in summary["pairs"]:
        where = [
            summary["datasets"][pair["dataset"]]["title"],
            framework_name(pair["framework"]),
            pair["point"] or DASH,
        ]
        names = f"{method_label(pair['first'])} − {method_label(pair['second'])}"
        rows.append(
            [
                *where,
                names,
                ranged(pair["ours"], summary["unit"]),
                signed(pair["paper"], summary["unit"]),
                pair["verdict"],
            ]
        )
    heads = ["data", "framework", "point", "difference", "ours (95 % interval)", "paper", "verdict"]
    return [f"## Differences of {summary['metric']}, paired by seed\n", table(heads, rows, texts=4)]


def _grid(summary: Summary) -> list[str]:
    lines = [line for line in summary["lines"] if len(line["grid"]) > 1]
    if not lines:
        return []
    heads = ["data", *label_heads(summary), *(f"R = {radius:g}" for radius in summary["radii"]), "chosen by"]
    rows = []
    for line in lines:
        rungs = [_rung(rung, summary) for rung in line["grid"]]
        rows.append(
            [summary["datasets"][line["dataset"]]["title"], *labels(summary, line), *rungs, line["chosen_by"]]
        )
    seen = f"Accuracy on the validation split, then {summary['metric']} on the test set"
    told = f"{seen}; the chosen R is bold. {TUNING}\n"
    return ["## The choice of R\n", told, table(heads, rows, texts=1 + len(label_heads(summary)))]


def _rung(rung: Mapping[str, Any], summary: Summary) -> str:
    ours = rung["metrics"].get(summary["metric"])
    text = f"{number(rung['validation'], '%')} / {number(ours['mean'] if ours else None, summary['unit'])}"
    return f"**{text}**" if rung["chosen"] else text


def _guarantees(summary: Summary) -> list[str]:
    told = dict.fromkeys((line["method"], line["privacy"]) for line in summary["lines"] if "privacy" in line)
    if not told:
        return []
    rows = [[method_label(method), sentence] for method, sentence in told]
    return ["## What the guarantees cover\n", table(["method", "statement"], rows, texts=2)]
