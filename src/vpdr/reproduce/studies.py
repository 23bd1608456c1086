"""The studies (tables and figures of the paper), the user's options, and the configs of a study's cells.

A study is described by `experiments/ID.toml`. Its axes are data set, point, framework and method; each
combination is a cell, and each cell becomes one config with a grid of clip norms R.
"""

import itertools
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache, reduce
from importlib import resources
from pathlib import Path
from typing import Any

from vpdr.attacks import AttackConfig, parse_attack_config
from vpdr.config import RunConfig, effects, load, rules
from vpdr.config.methods import METHODS
from vpdr.encoder import personal, zoo
from vpdr.io import from_json
from vpdr.validation import InvalidInput, check_known, deep_merge

ConfigData = Mapping[str, Any]  # nested tables, as in TOML
SELECTION_SPLITS = ("validation", "test")
DEVICE_PATTERN = re.compile(r"cpu|cuda(:\d+)?")
SET_BY_OTHER_OPTIONS = (
    ("framework", "kind", "the table names its frameworks; use vpdr run for one of your own"),
    ("run", "seed", "use --seeds"),
    ("benchmark", "root", "use --data NAME=DIR"),
)
SELECTION_SETTINGS = ("keep", "cap", "share", "selection")  # read only by mechanisms that select coordinates
_PACKAGE = "vpdr.reproduce"
_builtin = lru_cache(load.read_builtin)


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """One table or figure: its axes, seeds, grid of R, metrics, layout and the paper's numbers.

    Every field except `id` is a key of `experiments/ID.toml`.

    >>> load_study("ablation").methods[:2]
    ('igpp', 'vpp')
    """

    id: str
    title: str
    paper: str  # the item in the paper, such as "Table 2"
    kind: str = "table"  # a key of figures.FIGURES
    reader: str = "accuracy"  # a key of metrics.EXTRACTORS
    attack: str = ""  # attacks on its runs, as in --attack
    preset: str = "paper"
    datasets: tuple[str, ...]
    frameworks: tuple[str, ...] = ("fedproto",)
    methods: tuple[str, ...]
    points: ConfigData = field(default_factory=lambda: {"": {}})  # values of the extra axis: name -> settings
    custom_methods: ConfigData = field(default_factory=dict)  # methods beside the built-in ones: name -> settings
    plan: ConfigData = field(default_factory=dict)  # settings of all cells
    seeds: tuple[int, ...] = (0, 1, 2)
    radii: tuple[float, ...] = (5.0, 10.0, 15.0, 20.0)  # grid of the clip norm R
    columns: str = "metrics"  # or "points"
    metric: str = "avg"  # the metric of verdicts and paired differences
    unit: str = "%"
    tolerance: float = 2.0  # largest distance from the paper that agrees, in `unit`
    paper_key: str = ""  # path in paper_numbers.json: table>{framework}>{method}
    paper_form: str = "value"  # how metrics.py reads it there
    paper_names: ConfigData = field(default_factory=dict)  # names of methods in the paper, where they differ
    paper_keys: ConfigData = field(default_factory=dict)  # paths of single methods
    headline: str = "vpdr"
    base: str = "igpp"
    families: bool = False  # whether the points are model families
    only: ConfigData = field(default_factory=dict)  # data set -> prefix of the points that apply to it
    optimum: ConfigData = field(default_factory=dict)  # hyper-parameter -> the paper's best values
    contrasts: tuple[tuple[str, str], ...] = ()  # further pairs of methods: first minus second
    alone: bool = False  # whether runs are timed and therefore run one at a time
    notes: tuple[str, ...] = ()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of methods whose difference, first minus second, is reported seed by seed."""
        candidates = [
            (self.headline, self.base),
            (self.headline, f"{self.headline}-random"),
            (self.base, "local"),
            (self.headline, "local"),
            *((method, self.base) for method in self.methods if method not in (self.headline, self.base)),
            *self.contrasts,
        ]
        known = [(a, b) for a, b in candidates if {a, b} <= {*self.methods} and a not in (b, "local")]
        return list(dict.fromkeys(known))

    def method_overrides(self, method: str) -> ConfigData | None:
        """The settings that a method changes; None for an unknown method."""
        overrides: ConfigData | None = {**METHODS, **self.custom_methods}.get(method)
        return overrides


def study_ids() -> list[str]:
    """The ids of all studies: first those of the paper in its order, then the others."""
    files = (resources.files(_PACKAGE) / "experiments").iterdir()
    names = {Path(file.name).stem for file in files if file.name.endswith(".toml")}
    order: list[str] = shared_settings()["order"]
    return [name for name in order if name in names] + sorted(names - set(order))


def load_study(name: str) -> Study:
    """Load one of `study_ids()`; raises InvalidInput for another name."""
    check_known("id", [name], study_ids())
    return from_json(Study, {"id": name, **_read_toml(f"experiments/{name}.toml")}, name)


def shared_settings() -> ConfigData:
    """The content of setting.toml: data sets, display names and smoke settings of all studies."""
    return _read_toml("setting.toml")


@lru_cache(maxsize=1)
def paper_numbers() -> ConfigData:
    """All numbers printed in the paper's tables."""
    content: ConfigData = json.loads((resources.files(_PACKAGE) / "paper_numbers.json").read_text())
    return content


@lru_cache(maxsize=64)
def _read_toml(file: str) -> ConfigData:
    return tomllib.loads((resources.files(_PACKAGE) / file).read_text())


@dataclass(frozen=True, kw_only=True, slots=True)
class ReproduceOptions:
    """The user's options: data directories, backbones, seeds, overrides. They change no method.

    Raises InvalidInput if an option has an unknown value, or a setting is given that another option decides.
    """

    data_dirs: Mapping[str, Path] = field(default_factory=dict)  # cells of other data sets are not run
    backbones: Sequence[str] = ()  # they replace the paper's, one per modality
    weights: str | None = None  # file or directory of backbone weights that pip does not install
    adapters: str | None = None  # their placement; None uses the default of the backbone
    device: str | None = None  # cpu, cuda or cuda:N
    seeds: str | None = None  # such as "0..4" or "0,2"; None uses the study's seeds
    settings: Sequence[str] = ()  # overrides as `section.key=value`
    points: Sequence[str] = ()  # patterns of the points to run, such as `alpha=0.1*`; empty runs all
    smoke: bool = False  # run a small version with embedded data where none are given
    count_with_substitutes: bool = False  # for counting runs: cells of all data sets, with embedded data if needed
    attacks: AttackConfig | None = None  # they replace the study's
    select: str = "validation"  # the split on which R is selected

    def __post_init__(self) -> None:
        check_known("data set in --data", self.data_dirs, shared_settings()["datasets"])
        check_known("backbone", self.backbones, zoo.BACKBONES)
        check_known("split in --select", [self.select], SELECTION_SPLITS)
        check_known("place of --adapters", [] if self.adapters is None else [self.adapters], personal.PLACEMENTS)
        if self.device is not None and DEVICE_PATTERN.fullmatch(self.device) is None:
            raise InvalidInput(f"--device must be cpu, cuda or cuda:N, got {self.device!r}")
        for section, key, advice in SET_BY_OTHER_OPTIONS:
            if key in self.overrides.get(section, {}):
                raise InvalidInput(f"--set {section}.{key} has no effect: {advice}")
        preset = _builtin("presets", "paper")
        RunConfig.from_tables(deep_merge(preset, self.overrides))  # reports a misspelt setting at once

    @property
    def overrides(self) -> ConfigData:
        return load.parse_overrides(self.settings)

    def check_study(self, study: Study) -> None:
        """Raise InvalidInput if a pattern matches no point, or a backbone reads none of the study's modalities."""
        for pattern in self.points:
            if not any(fnmatchcase(point, pattern) for point in study.points):
                known = ", ".join(repr(point) for point in study.points if point) or "none"
                raise InvalidInput(f"--points {pattern} names no point of {study.id}; it has {known}")
        needed = {_modality(shared_settings()["datasets"][name]["backbone"]) for name in study.datasets}
        for name in self.backbones:
            if _modality(name) not in needed:
                others = " or ".join(f"{modality}s" for modality in sorted(needed))
                raise InvalidInput(f"{name} reads {_modality(name)}s; {study.id} needs a backbone for {others}")

    def backbone_for(self, dataset: str) -> str:
        """The user's backbone of the data set's modality, else the paper's."""
        default: str = shared_settings()["datasets"][dataset]["backbone"]
        modality = _modality(default)
        return next((name for name in self.backbones if _modality(name) == modality), default)

    def adapters_for(self, dataset: str) -> str:
        """The user's adapter placement, else the default, which is cheaper for pip-installed backbones."""
        if self.adapters:
            return self.adapters
        installed = bool(zoo.BACKBONES[self.backbone_for(dataset)].package)
        return str(shared_settings()["adapters"]["installed" if installed else "trained"])

    def attacks_for(self, study: Study) -> AttackConfig | None:
        """The user's attacks, else the study's; one worker each, since runs are parallel already."""
        if self.attacks is not None and not study.attack:
            raise InvalidInput(f"--attack has no effect on {study.id}: its table has no column for attacks")
        attacks = self.attacks or (parse_attack_config(study.attack, None) if study.attack else None)
        return None if attacks is None else replace(attacks, workers=1)

    def seeds_for(self, study: Study) -> tuple[int, ...]:
        """The user's seeds, else those of smoke runs, else the study's."""
        if self.seeds is not None:
            return load.parse_seeds(self.seeds)
        return tuple(shared_settings()["smoke"]["seeds"]) if self.smoke else study.seeds

    def radii_for(self, study: Study) -> tuple[float, ...]:
        """The grid of R; a clip norm set by the user replaces it."""
        clip_norm = self.overrides.get("mechanism", {}).get("clip_norm")
        if clip_norm is not None:
            return (float(clip_norm),)
        if self.smoke and len(study.radii) > 1:
            return tuple(shared_settings()["smoke"]["radii"])
        return study.radii

    def points_for(self, study: Study, dataset: str) -> dict[str, ConfigData]:
        """The points of a data set with their settings; a smoke run takes the first few of each group.

        Points of one group share the text before the last `=`.
        """
        prefix = study.only.get(dataset, "")
        points = {
            name: table
            for name, table in study.points.items()
            if name.startswith(prefix)
            and (not self.points or any(fnmatchcase(name, pattern) for pattern in self.points))
        }
        if not self.smoke:
            return points
        groups: dict[str, list[str]] = {}
        for name in points:
            groups.setdefault(name.rpartition("=")[0], []).append(name)
        limit = shared_settings()["smoke"]["points"]
        return {name: points[name] for names in groups.values() for name in names[:limit]}


def _modality(backbone: str) -> str:
    return zoo.BACKBONES[backbone].info.modality


def existing_data_dirs(texts: Sequence[str]) -> dict[str, Path]:
    """Parse `NAME=DIR` texts; raises InvalidInput for another form, or if a directory does not exist."""
    directories = {name: Path(directory) for name, directory in load.parse_data_dirs(texts).items()}
    for name, path in directories.items():
        if not path.is_dir():
            problem = f"{path} is not a directory" if path.exists() else f"there is no {path}"
            raise InvalidInput(f"--data {name}: {problem}; name the directory that holds the data set")
    return directories


@dataclass(frozen=True, kw_only=True, slots=True)
class CellKey:
    """The position of a cell on the axes of its study."""

    dataset: str
    framework: str
    method: str
    point: str


@dataclass(frozen=True, kw_only=True)
class StudyCell:
    """One number of a table to be measured: a config with its grid of R, or the reason why it cannot run.

    A cell has several keys where an axis does not change its config, such as the framework of `local`.
    """

    keys: tuple[CellKey, ...]
    base_config: RunConfig | None = None
    radii: tuple[float | None, ...] = ()  # None: the config does not use R
    why_not: str | None = None

    @property
    def key(self) -> CellKey:
        return self.keys[0]

    def config(self, radius: float | None, seed: int) -> RunConfig:
        if self.base_config is None:
            raise InvalidInput(f"{self.key.method} on {self.key.dataset} cannot run: {self.why_not}")
        mechanism, run = self.base_config.mechanism, replace(self.base_config.run, seed=seed)
        if radius is not None:
            mechanism = replace(mechanism, clip_norm=radius)
        return replace(self.base_config, mechanism=mechanism, run=run)

    def config_hash(self, radius: float | None, seed: int) -> str:
        """The hash of everything that decides the result of one run."""
        return self.config(radius, seed).config_hash


def make_cells(study: Study, options: ReproduceOptions) -> list[StudyCell]:
    """All cells in the order of the table; keys with equal configs share one cell."""
    cells: dict[tuple[str, str], StudyCell] = {}
    for dataset in study.datasets:
        points = options.points_for(study, dataset)
        for point, framework, method in itertools.product(points, study.frameworks, study.methods):
            key = CellKey(dataset=dataset, framework=framework, method=method, point=point)
            cell = _make_cell(study, options, key, points[point])
            same = (dataset, str(key) if cell.base_config is None else cell.base_config.config_hash)
            if same in cells:
                cell = replace(cells[same], keys=(*cells[same].keys, key))
            cells[same] = cell
    configs = [cell.base_config for cell in cells.values() if cell.base_config is not None]
    if configs:  # --set changes a result, or is refused
        changed = effects.changed_settings(options.overrides, _builtin("presets", study.preset))
        effects.check_settings_count([(path, configs) for path in sorted(changed)])
    return list(cells.values())


def _make_cell(study: Study, options: ReproduceOptions, key: CellKey, point_settings: ConfigData) -> StudyCell:
    method_settings = study.method_overrides(key.method)
    substitutes, why_not = options.smoke or options.count_with_substitutes, None
    if method_settings is None:
        why_not = f"no method named {key.method} in this version"
    elif key.dataset not in options.data_dirs:
        why_not = None if substitutes else f"no --data {key.dataset}=DIR"
    elif options.weights is None and not zoo.BACKBONES[backbone := options.backbone_for(key.dataset)].package:
        why_not = f"no --weights for {'the backbones of its families' if study.families else backbone}"
    if method_settings is None or why_not is not None:
        return StudyCell(keys=(key,), why_not=why_not)
    overrides, family = options.overrides, {}
    domains = overrides.get("benchmark", {}).get("domains")
    if domains is not None:
        available = shared_settings()["datasets"][key.dataset]["domains"]
        overrides = deep_merge(overrides, {"benchmark": {"domains": [name for name in domains if name in available]}})
    if study.families and (substitutes or options.backbones):  # the similar family with pip-installed weights
        family = {"model": {"family": shared_settings()["families"][point_settings["model"]["family"]]}}
    layers = (
        _builtin("presets", study.preset),
        {"run": {"name": study.id}},
        study.plan,
        _dataset_settings(options, key.dataset),
        shared_settings()["smoke"]["plan"] if options.smoke else {},
        {"framework": {"kind": key.framework}},
        overrides,
        point_settings,
        family,
        method_settings,  # last: the user cannot change what defines a method
    )
    config = RunConfig.from_tables(_drop_unused_settings(reduce(deep_merge, layers)))
    radii = options.radii_for(study) if uses_clip_norm(config) else (None,)
    return StudyCell(keys=(key,), base_config=config, radii=radii)


def _dataset_settings(options: ReproduceOptions, dataset: str) -> ConfigData:
    """The settings of a data set on disk and of the backbone that encodes it, or of the embedded data."""
    if dataset not in options.data_dirs:
        fallback: ConfigData = shared_settings()["smoke"]["fallback"]["plan"]
        return fallback
    model = {"backbone": options.backbone_for(dataset), "adapters": options.adapters_for(dataset)}
    model |= {} if options.weights is None else {"weights": options.weights}
    run = {} if options.device is None else {"device": options.device}
    settings = {"benchmark": {"root": str(options.data_dirs[dataset])}, "model": model, "run": run}
    return deep_merge(shared_settings()["datasets"][dataset]["plan"], settings)


def _drop_unused_settings(data: ConfigData) -> ConfigData:
    """Drop settings that the config does not read, so that equal runs have equal hashes."""
    config, sections = RunConfig.from_tables(data), {name: dict(table) for name, table in data.items()}
    unused: tuple[str, ...] = ()
    if not rules.uploads_prototypes(config):
        unused = ("mechanism", "budget", "release", "weights")
    elif not rules.mechanism_traits(config).is_private:
        unused = ("budget",)
    if rules.has_noop_regulariser(config):
        sections["regulariser"] = {"kind": config.regulariser.kind}
    if not rules.mechanism_traits(config).has_selection:
        for name in SELECTION_SETTINGS:
            sections.get("mechanism", {}).pop(name, None)
    return {name: table for name, table in sections.items() if name not in unused}


def uses_clip_norm(config: RunConfig) -> bool:
    """Whether features are clipped to R: by a private release or by DCR."""
    releases = rules.uploads_prototypes(config) and rules.mechanism_traits(config).is_private
    return releases or not rules.has_noop_regulariser(config)
