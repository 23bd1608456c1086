"""Differences between two methods, seed by seed, beside the paper's."""

from collections.abc import Mapping, Sequence
from typing import Any

from vpdr.report.summary import interval
from vpdr.reproduce.catalogue import Study
from vpdr.reproduce.cells import Cell, Place
from vpdr.reproduce.choosing import Choice
from vpdr.reproduce.paper import printed
from vpdr.reproduce.verdicts import Contrast

Drafts = Sequence[tuple[Cell, Choice | None]]


def pairs_of(study: Study, cell: Cell, drafts: Drafts) -> list[dict[str, Any]]:
    """Differences whose first method is this cell's, at each of its places."""
    found = []
    for place in cell.places:
        for pair in study.pairs:
            if pair.first != place.method:
                continue
            one, other = _at(drafts, place, pair.first), _at(drafts, place, pair.second)
            if one is None or other is None:
                continue
            found.append(_pair(study, place, pair.second, (one, other)))
    return [pair for pair in found if pair["ours"] is not None]


def _at(drafts: Drafts, place: Place, method: str) -> Choice | None:
    for cell, choice in drafts:
        for each in cell.places:
            where = (each.dataset, each.framework, each.point, each.method)
            if where == (place.dataset, place.framework, place.point, method):
                return choice
    return None


def _pair(study: Study, place: Place, second: str, choices: tuple[Choice, Choice]) -> dict[str, Any]:
    one, other = (choice.runs for choice in choices)
    values = [
        one[seed].reading[study.metric] - other[seed].reading[study.metric]
        for seed in sorted(one)
        if study.metric in one[seed].reading and study.metric in other[seed].reading
    ]
    clients = next(iter(one.values())).clients
    against = Place(dataset=place.dataset, framework=place.framework, method=second, point=place.point)
    theirs = [printed(study, each, clients).get(study.metric) for each in (place, against)]
    return {
        "dataset": place.dataset,
        "framework": place.framework,
        "point": place.point,
        "first": place.method,
        "second": second,
        "ours": interval(values) if values else None,
        "paper": None if theirs[0] is None or theirs[1] is None else theirs[0] - theirs[1],
    }


def contrast(pair: Mapping[str, Any]) -> Contrast | None:
    """The pair as verdicts want it; None where the paper has no such difference."""
    return None if pair["paper"] is None else Contrast(pair["ours"], pair["paper"])
