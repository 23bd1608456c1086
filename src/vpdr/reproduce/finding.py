"""Which summaries lie in a folder: beside each other, or as `vpdr reproduce` leaves them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.errors import InvalidInput
from vpdr.reproduce.catalogue import ids
from vpdr.reproduce.output import read_summary

Summary = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """Summaries in the order of the ids, and the files of smoke runs that were left out."""

    summaries: tuple[Summary, ...]
    smoke: tuple[Path, ...]


def find_summaries(places: Sequence[Path]) -> Found:
    """All summaries in folders or files; a smoke page below a folder is no result, unless it is named."""
    found: list[Summary] = []
    smoke: list[Path] = []
    for place in places:
        if not place.exists():
            raise InvalidInput(f"there is no {place}; name a folder of summaries (ID.json), or the files")
        found += [_pictured(file) for file in (sorted(place.glob("*.json")) if place.is_dir() else [place])]
        for file in _below(place):
            summary = {**_pictured(file), "name": file.parent.name}  # ID, or ID-points
            if summary["smoke"]:
                smoke.append(file)
            else:
                found.append(summary)
    if not found:
        raise InvalidInput(_nothing(places, smoke))
    return Found(tuple(sorted(found, key=_rank)), tuple(smoke))


def _below(out: Path) -> list[Path]:
    """The summaries that reproductions into one folder leave: */ID.json."""
    return [file for name in ids() for file in sorted(out.glob(f"*/{name}.json"))] if out.is_dir() else []


def _nothing(places: Sequence[Path], smoke: Sequence[Path]) -> str:
    where = ", ".join(map(str, places))
    if smoke:
        return f"only smoke runs in {where}; name {smoke[0].parent} itself to see one, or run without --smoke"
    return f"no summaries in {where}; copy ID.json of a reproduction there"


def _rank(summary: Summary) -> tuple[int, str]:
    order = ids()
    place = order.index(summary["id"]) if summary["id"] in order else len(order)
    return place, summary["name"]


def _pictured(file: Path) -> Summary:
    """A summary with the name of its file, since an id may be there twice, and the picture beside it."""
    picture = file.with_suffix(".svg")
    shown = {"picture": f"{picture.parent.name}/{picture.name}"} if picture.exists() else {}
    return {**read_summary(file), "name": file.stem, **shown}
