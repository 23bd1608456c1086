"""What the paper prints for a place on the axes, in the shape of our readings."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vpdr.reproduce.catalogue import Study, paper_numbers, setting
from vpdr.reproduce.cells import Place

Printed = dict[str, float]


def printed(study: Study, place: Place, clients: Sequence[str] = ()) -> Printed:
    """The paper's numbers for this place; empty where it has none.

    Where only some of the paper's domains were run, its average and spread are taken over the same ones.
    """
    template = study.paper_keys.get(place.method, study.paper_key)
    leaf = _leaf(template.format(**_names(study, place))) if template else None
    if leaf is None:
        return {}
    domains: list[str] = setting()["datasets"][place.dataset]["domains"]
    return _FORMS[study.paper_form](leaf, domains, [name for name in domains if name in clients])


def _names(study: Study, place: Place) -> dict[str, str]:
    told = setting()
    own = told["datasets"][place.dataset]
    plain = {"igpp": "IGPP", "vpp": "VPP", "vpdr": "VPDR"}
    return {
        "framework": told["names"]["frameworks"].get(place.framework, place.framework),
        "method": (study.paper_names or plain).get(place.method, "-"),
        "dataset": own["paper"],
        "short": own["short"],
        "point": place.point,
    }


def _leaf(path: str) -> Any:
    """Follow a path such as table>FedProto>IGPP; `#name` at its end is a column of the list there."""
    path, hash_sign, column = path.partition("#")
    first, *rest = path.split(">")
    table: Any = paper_numbers()[first]
    columns = table.get("columns", [])
    for key in rest:
        if not isinstance(table, Mapping) or key not in table:
            return None
        table = table[key]
    if hash_sign:
        return table[columns.index(column)] if column in columns else None
    return table


def _value(leaf: Any, _: Sequence[str], __: Sequence[str]) -> Printed:
    return {"avg": float(leaf)}


def _domains(leaf: Any, domains: Sequence[str], ran: Sequence[str]) -> Printed:
    values = dict(zip(domains, leaf["domains"], strict=True))
    return {**values, **_over(values, ran, leaf["avg"], leaf["std"])}


def _row(leaf: Any, domains: Sequence[str], ran: Sequence[str]) -> Printed:
    *each, average, std = leaf
    values = dict(zip(domains, each, strict=True))
    return {**values, **_over(values, ran, average, std)}


def _over(values: Printed, ran: Sequence[str], average: float, std: float) -> Printed:
    """As printed, or over the domains that were run."""
    if not ran or len(ran) == len(values):
        return {"avg": average, "std": std}
    some = [values[name] for name in ran]
    return {"avg": statistics.fmean(some)} | ({"std": statistics.stdev(some)} if len(some) > 1 else {})


def _attacks(leaf: Any, _: Sequence[str], __: Sequence[str]) -> Printed:
    return {name: float(values[0]) for name, values in leaf.items()}


def _pair(leaf: Any, _: Sequence[str], __: Sequence[str]) -> Printed:
    return {"avg": leaf[0], "auc": leaf[1]}


def _moments(leaf: Any, _: Sequence[str], __: Sequence[str]) -> Printed:
    return {f"{when} {name}": value for when, values in leaf.items() for name, value in values.items()} | {
        "avg": statistics.fmean(leaf["T=20"].values())
    }


_FORMS: dict[str, Callable[[Any, Sequence[str], Sequence[str]], Printed]] = {
    "value": _value,
    "column": _value,
    "domains": _domains,
    "row": _row,
    "attacks": _attacks,
    "pair": _pair,
    "moments": _moments,
}
