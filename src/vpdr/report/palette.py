"""One colour for each family of methods, told apart by people who see few colours too."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BASELINE = "#222222"
# Okabe and Ito without yellow, which is lost on white paper, then three of Paul Tol's
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933", "#332288")
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "D", "s", "^")


@dataclass(frozen=True, slots=True)
class Look:
    """How a method is drawn: the family's colour, the member's line and marker."""

    family: str
    colour: str
    dash: str
    marker: str


Looks = Mapping[str, Look]  # by method


def family_of(method: str) -> str:
    """`igpp-1` and `igpp-8` are members of the family `igpp`."""
    return re.sub(r"-[\d.]+$", "", method)


def looks(methods: Sequence[str], baseline: str | None) -> dict[str, Look]:
    """The look of each method; depends on the order of the methods only."""
    families: dict[str, list[str]] = {}
    for method in methods:
        families.setdefault(family_of(method), []).append(method)
    others = [family for family in families if baseline not in families[family]]
    colours = {family: COLOURS[index % len(COLOURS)] for index, family in enumerate(others)}
    found = {}
    for family, members in families.items():
        for index, method in enumerate(members):
            colour = colours.get(family, BASELINE)
            found[method] = Look(family, colour, DASHES[index % 4], MARKERS[index % 4])
    return found
