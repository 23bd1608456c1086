"""What a user asks for on top of a table's own description."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from vpdr.attacks import AttackOrder, order_from
from vpdr.encoder import BACKBONES, PLACEMENTS
from vpdr.errors import InvalidInput
from vpdr.plan import Plan
from vpdr.plan.experiment import folders_of, parse_seeds
from vpdr.plan.sources import read_builtin
from vpdr.plan.values import known, merged, wished
from vpdr.reproduce.catalogue import Study, setting

SELECTIONS = ("validation", "test")
DEVICE = re.compile(r"cpu|cuda(:\d+)?")
DECIDED = (
    ("framework", "kind", "the table names its frameworks; use vpdr run for one of your own"),
    ("run", "seed", "use --seeds"),
    ("benchmark", "root", "use --data NAME=DIR"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """Where the data are, which backbone, which seeds, how small; nothing here changes a method."""

    data: Mapping[str, Path] = field(default_factory=dict)  # data set -> its folder
    backbones: Sequence[str] = ()  # instead of the paper's: one for images, one for texts
    weights: str | None = None
    adapters: str | None = None
    device: str | None = None
    seeds: str | None = None
    settings: Sequence[str] = ()  # section.key=value
    points: Sequence[str] = ()  # patterns of the points to run, such as alpha=0.1*; none: all
    smoke: bool = False
    stand_in: bool = False  # count what would run, with embedded data in the place of what is not given
    attacks: AttackOrder | None = None  # instead of the table's own
    select: str = "validation"  # on which split R is chosen; test is what the paper probably did

    def __post_init__(self) -> None:
        known("data set in --data", self.data, setting()["datasets"])
        known("backbone", self.backbones, BACKBONES)
        known("split in --select", [self.select], SELECTIONS)
        known("place of --adapters", [] if self.adapters is None else [self.adapters], PLACEMENTS)
        if self.device is not None and DEVICE.fullmatch(self.device) is None:
            raise InvalidInput(f"--device must be cpu, cuda or cuda:N, got {self.device!r}")
        for section, key, words in DECIDED:
            if key in self.wanted.get(section, {}):
                raise InvalidInput(f"--set {section}.{key} has no effect: {words}")
        preset = read_builtin("presets", "paper")
        Plan.from_data(merged(preset, self.wanted))  # a typing error is told at once

    def backbone_of(self, dataset: str) -> str:
        """The user's for this kind of data, else the paper's."""
        own: str = setting()["datasets"][dataset]["backbone"]
        sees = {name: entry.traits.modality for name, entry in BACKBONES.items()}
        return next((name for name in self.backbones if sees[name] == sees[own]), own)

    def fits(self, study: Study) -> None:
        """Refuse points that a table does not have, and a backbone that none of its data can be read by."""
        needed = {
            BACKBONES[setting()["datasets"][name]["backbone"]].traits.modality for name in study.datasets
        }
        for pattern in self.points:
            if not any(fnmatchcase(point, pattern) for point in study.points):
                there = ", ".join(repr(point) for point in study.points if point) or "none"
                raise InvalidInput(f"--points {pattern} names no point of {study.id}; it has {there}")
        for name in self.backbones:
            seen = BACKBONES[name].traits.modality
            if seen not in needed:
                others = " or ".join(f"{each}s" for each in sorted(needed))
                raise InvalidInput(f"{name} reads {seen}s; {study.id} needs a backbone for {others}")

    @property
    def wanted(self) -> dict[str, Any]:
        """The settings as nested tables."""
        return wished(self.settings)

    def attacks_of(self, study: Study) -> AttackOrder | None:
        """The user's, else the table's own; side by side with others a run attacks with one worker."""
        if self.attacks is not None and not study.attack:
            raise InvalidInput(f"--attack has no effect on {study.id}: its table has no column for attacks")
        asked = self.attacks or (order_from(study.attack, None) if study.attack else None)
        return None if asked is None else replace(asked, workers=1)

    def seeds_of(self, study: Study) -> tuple[int, ...]:
        """The user's, else a smoke run's, else the table's own."""
        if self.seeds is not None:
            return parse_seeds(self.seeds)
        return tuple(setting()["smoke"]["seeds"]) if self.smoke else study.seeds

    def radii_of(self, study: Study) -> tuple[float, ...]:
        """The grid of R; a user who sets R has chosen it."""
        chosen = self.wanted.get("mechanism", {}).get("clip_norm")
        if chosen is not None:
            return (float(chosen),)
        small = tuple(setting()["smoke"]["radii"]) if self.smoke else study.radii
        return small if len(study.radii) > 1 else study.radii

    def points_of(self, study: Study, dataset: str) -> dict[str, Mapping[str, Any]]:
        """The values of the extra axis; a smoke run takes the first few of each kind."""
        begin = study.only.get(dataset, "")
        points = {
            name: table
            for name, table in study.points.items()
            if name.startswith(begin) and self._wants(name)
        }
        if not self.smoke:
            return points
        groups: dict[str, list[str]] = {}
        for name in points:
            groups.setdefault(name.rpartition("=")[0], []).append(name)
        kept = [name for names in groups.values() for name in names[: setting()["smoke"]["points"]]]
        return {name: points[name] for name in kept}

    def _wants(self, point: str) -> bool:
        return not self.points or any(fnmatchcase(point, pattern) for pattern in self.points)


def parse_data(texts: Sequence[str]) -> dict[str, Path]:
    """`NAME=DIR` as a data set and its folder, which must be there."""
    found = {name: Path(folder) for name, folder in folders_of(texts).items()}
    for name, folder in found.items():
        if not folder.is_dir():
            trouble = f"{folder} is not a folder" if folder.exists() else f"there is no {folder}"
            raise InvalidInput(f"--data {name}: {trouble}; name the folder that holds the data set")
    return found
