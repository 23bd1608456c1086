"""Everything that a page shows, as one JSON object: lines, differences, choices of R, verdicts."""

from collections.abc import Mapping, Sequence
from typing import Any

from vpdr.reproduce.catalogue import Study, setting
from vpdr.reproduce.cells import Cell, adapters_of
from vpdr.reproduce.choosing import choose
from vpdr.reproduce.lines import Line, line_of
from vpdr.reproduce.pairs import contrast, pairs_of
from vpdr.reproduce.running import Harvest
from vpdr.reproduce.verdicts import NOT_JUDGED, NOT_RUN, RULE, contrast_verdict, not_run, verdict
from vpdr.reproduce.wish import Wish

SCHEMA, VERSION = "vpdr-reproduction", 1
Summary = dict[str, Any]


def summarise(study: Study, wish: Wish, cells: Sequence[Cell], harvest: Harvest) -> Summary:
    """The whole table from what was measured."""
    seeds = wish.seeds_of(study)
    drafts = [(cell, choose(cell, harvest.results, seeds, wish.select)) for cell in cells]
    lines = [
        line_of(study, cell, choice, "" if choice else _refusal(cell, harvest, seeds))
        for cell, choice in drafts
    ]
    pairs = [pair for cell, _ in drafts for pair in pairs_of(study, cell, drafts)]
    for line in lines:
        line |= _judged(study, line, pairs)
        line["difference"] = None if wish.smoke else line["difference"]
        line["verdict"] = _qualified(line["verdict"], line["paper"].get(study.metric), _apart(wish, line))
    for pair in pairs:
        pair["verdict"] = _qualified(contrast_verdict(contrast(pair)), pair["paper"], _apart(wish, pair))
    return {
        **_heading(study, wish, seeds),
        "lines": lines,
        "pairs": pairs,
        "versions": next((run.versions for run in harvest.results.values()), {}),
        "wall_seconds": sum(run.wall_seconds for run in harvest.results.values()),
    }


def _refusal(cell: Cell, harvest: Harvest, seeds: Sequence[int]) -> str:
    """Why a cell has no numbers: what its description lacks, or what its first run was told."""
    if cell.why_not is not None:
        return cell.why_not
    told = (harvest.refused.get(cell.identity(radius, seed)) for radius in cell.radii for seed in seeds)
    return next((why for why in told if why is not None), "some of its runs are missing")


def _heading(study: Study, wish: Wish, seeds: Sequence[int]) -> Summary:
    unit = {"%": " points"}.get(study.unit, f" {study.unit}".rstrip())
    rule = RULE.format(tolerance=f"{study.tolerance:g}{unit}", base=study.base, headline=study.headline)
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "id": study.id,
        "title": study.title,
        "paper": study.paper,
        "kind": study.kind,
        "columns": study.columns,
        "metric": study.metric,
        "unit": study.unit,
        "smoke": wish.smoke,
        "seeds": list(seeds),
        "radii": list(wish.radii_of(study)),
        "methods": list(study.methods),
        "frameworks": list(study.frameworks),
        "datasets": {name: _dataset(wish, name) for name in study.datasets},
        "settings": list(wish.settings),
        "rule": rule,
        "notes": [*study.notes, *_left_out(wish)],
    }


def _left_out(wish: Wish) -> list[str]:
    return [f"Only these points were asked for: {'; '.join(wish.points)}."] if wish.points else []


def _dataset(wish: Wish, name: str) -> dict[str, Any]:
    """Which backbone saw it, with adapters where, and which one the paper used."""
    own = setting()["datasets"][name]
    given = name in wish.data
    return {
        "adapters": adapters_of(wish, name) if given else None,
        "title": own["title"] if given or not wish.smoke else f"{own['title']} (embedded digits instead)",
        "given": given,
        "backbone": wish.backbone_of(name) if given else None,
        "paper_backbone": own["backbone"],
    }


def _judged(study: Study, line: Line, pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The verdict of a line, from its number and from the contrast that it stands for."""
    if line["why"] is not None:
        return {"difference": None, "verdict": not_run(line["why"])}
    ours, paper = line["metrics"].get(study.metric), line["paper"].get(study.metric)
    if ours is None:
        return {"difference": None, "verdict": not_run(_MISSING.get(study.reader, "nothing measured"))}
    method = study.headline if line["method"] == study.base else line["method"]
    own = [
        pair
        for pair in pairs
        if (pair["dataset"], pair["first"], pair["second"]) == (line["dataset"], method, study.base)
        and pair["framework"] in line["frameworks"]
        and pair["point"] in line["points"]
    ]
    found = verdict(ours, paper, study.tolerance, contrast(own[0]) if own else None)
    return {"difference": None if paper is None else ours["mean"] - paper, "verdict": found}


def _apart(wish: Wish, line: Mapping[str, Any]) -> list[str]:
    """In what a line's setting differs from the paper's, whatever the numbers say."""
    if wish.smoke:
        return ["smoke"]
    own = setting()["datasets"][line["dataset"]]
    ours = wish.backbone_of(line["dataset"])
    ran = [name for name in own["domains"] if name in line.get("metrics", {})]
    found = [] if ours == own["backbone"] else [f"other backbone ({ours})"]
    idle = ["run.measure_every="]  # it changes no result
    if ran and len(ran) < len(own["domains"]):
        found.append(f"{len(ran)} of {len(own['domains'])} domains")
        idle.append("benchmark.domains=")
    changed = [text for text in wish.settings if not text.startswith(tuple(idle))]
    return [*found, "changed settings"] if changed else found


def _qualified(found: str, paper: float | None, apart: Sequence[str]) -> str:
    """A smoke run judges nothing; another setting is said beside the verdict."""
    if paper is None or found.startswith(NOT_RUN) or not apart:
        return found
    return NOT_JUDGED if apart == ["smoke"] else f"{found}; {', '.join(apart)}"


_MISSING = {"attacks": "needs --attack mia"}
