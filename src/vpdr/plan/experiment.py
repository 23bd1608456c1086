"""Files and names: a preset, an experiment with several arms, or a file of the user's own."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vpdr.errors import InvalidInput
from vpdr.plan.data_combinations import BENCHMARKS
from vpdr.plan.plan import Plan
from vpdr.plan.sources import KEYS, checked, presets, read_builtin, read_source
from vpdr.plan.values import known, merged, wished


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One cell of a comparison: a setting, a method and its plan (with the first seed)."""

    setting: str
    method: str
    plan: Plan

    def seeded(self, seed: int) -> Plan:
        """The same plan from another seed."""
        return dataclasses.replace(self.plan, run=dataclasses.replace(self.plan.run, seed=seed))


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """Arms times seeds; a single run is one arm with one seed."""

    name: str
    title: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    baseline: str | None = None  # the method that all others are compared with

    @property
    def single(self) -> bool:
        """Whether there is nothing to compare."""
        return len(self.arms) == 1 and len(self.seeds) == 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """What the command line asks for on top of a name or a file."""

    settings: Sequence[str] = field(default_factory=tuple)  # --set section.key=value
    seeds: str | None = None
    methods: str | None = None
    data: Sequence[str] = field(default_factory=tuple)  # --data benchmark=folder


def load_experiment(source: str, wishes: Wishes | None = None) -> Experiment:
    """Read a built-in name or a TOML file, lay the user's wishes over it and decide every plan."""
    wishes = wishes or Wishes()
    content = checked(read_source(source))
    name = Path(source).stem
    preset = content.get("preset", "paper")
    known("preset", [preset], presets())
    wanted = wished(wishes.settings)
    own = {key: value for key, value in content.items() if key not in KEYS}
    base = merged(read_builtin("presets", preset), own)
    methods, folders = _methods(content, wishes), folders_of(wishes.data)
    arms = []
    for setting, changes in (content.get("settings") or {"": {}}).items():
        for method, overrides in methods.items():
            data = merged(merged(merged(base, changes), wanted), overrides)  # an arm stays what it is
            data = rooted(merged({"run": {"name": name}}, data), folders)
            arms.append(Arm(setting=setting, method=method, plan=Plan.from_data(data)))
    seeds = parse_seeds(wishes.seeds) if wishes.seeds else distinct(content.get("seeds", []))
    _check_effect(wanted, methods)
    if "baseline" in content:
        known("baseline", [content["baseline"]], [*methods, *read_builtin("experiments", "methods")])
    return Experiment(
        name=name,
        title=content.get("title", name),
        arms=tuple(arms),
        seeds=seeds or (arms[0].plan.run.seed,),
        baseline=content.get("baseline", "local" if "local" in methods else None),
    )


def folders_of(texts: Sequence[str]) -> dict[str, str]:
    """`benchmark=folder`, several times, as where each benchmark's data lie."""
    folders = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        known("benchmark in --data", [name.strip()], BENCHMARKS)
        if not equals or not folder.strip():
            raise InvalidInput(f"--data needs benchmark=folder, got {text!r}")
        folders[name.strip()] = str(Path(folder.strip()).expanduser().absolute())
    return folders


def rooted(data: Mapping[str, Any], folders: Mapping[str, str]) -> dict[str, Any]:
    """A plan's tables, told where the data of its benchmark lie."""
    kind = data.get("benchmark", {}).get("kind")
    return merged(data, {"benchmark": {"root": folders[kind]}} if kind in folders else {})


def _methods(content: Mapping[str, Any], wishes: Wishes) -> dict[str, Mapping[str, Any]]:
    """The arms by name: those of the file, and the built-in ones."""
    available = {**read_builtin("experiments", "methods"), **content.get("arms", {})}
    if wishes.methods is not None:
        names = [name.strip() for name in wishes.methods.split(",")]
    else:
        names = list(content.get("methods", ()))
    known("method", names, available)
    return {name: available[name] for name in names} or {"": {}}


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0..4`, `3` or `0,2,5` as seeds."""
    try:
        first, dots, last = text.partition("..")
        seeds = range(int(first), int(last) + 1) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"seeds must look like 0..4, 3 or 0,2,5, got {text!r}") from None
    if not seeds:
        raise InvalidInput(f"seeds must look like 0..4, 3 or 0,2,5, got {text!r}: none are left")
    return distinct(list(seeds))


def distinct(seeds: list[int]) -> tuple[int, ...]:
    """Seeds that each stand for a run of their own."""
    if any(type(seed) is not int or seed < 0 for seed in seeds) or len(set(seeds)) != len(seeds):
        raise InvalidInput(f"seeds must be different whole numbers of at least 0, got {seeds}")
    return tuple(seeds)


def _check_effect(wanted: Mapping[str, Any], methods: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a wish that every method overrules."""
    for section, settings in wanted.items():
        for key in settings:
            if all(key in (overrides.get(section) or {}) for overrides in methods.values()):
                raise InvalidInput(
                    f"--set {section}.{key} has no effect: each method sets it itself; leave it out, "
                    "or describe an arm of your own in a file"
                )
