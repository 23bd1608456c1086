"""From names, files and the command line to configs: presets, experiments, overrides, methods and seeds."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from vpdr import registry, validation
from vpdr.config.config import SECTION_NAMES, TOP_LEVEL_KEYS, RunConfig, check_sections, suggest_setting
from vpdr.config.layers import DataDirs, GivenSettings, Layer, merged, stored_values
from vpdr.config.methods import METHODS, check_names
from vpdr.config.renames import modernise, rename_keys
from vpdr.config.rules import benchmark_names
from vpdr.data.own import HUGGING_FACE
from vpdr.frameworks import FRAMEWORKS
from vpdr.validation import DamagedFile, InvalidInput, check_known, deep_merge, suggestion


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodConfig:
    """One method in one scenario, with its config at the first seed."""

    scenario: str
    method: str
    config: RunConfig

    def with_seed(self, seed: int) -> RunConfig:
        """The same config with another seed."""
        return replace(self.config, run=replace(self.config.run, seed=seed))


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """Methods in scenarios, times seeds; a single run is one method with one seed."""

    name: str
    title: str
    method_configs: tuple[MethodConfig, ...]
    seeds: tuple[int, ...]
    baseline: str | None = None  # the method that all others are compared with

    @property
    def is_single_run(self) -> bool:
        """Whether there is nothing to compare."""
        return len(self.method_configs) == 1 and len(self.seeds) == 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentOptions:
    """What the command line adds to a name or a file."""

    settings: Sequence[str] = field(default_factory=tuple)  # --set section.key=value
    assumed: Sequence[str] = field(default_factory=tuple)  # the same from the program; they need not count
    seeds: str | None = None
    methods: str | None = None
    data: Sequence[str] = field(default_factory=tuple)  # --data benchmark=directory


PRESET_METHODS = {"paper": "vpdr", "authors": "vpdr"}  # the method of a single run that names none


def load_experiment(source: str | Mapping[str, Any], options: ExperimentOptions | None = None) -> Experiment:
    """The experiment of a preset's name, of a built-in experiment, of a TOML file or of its content, checked.

    >>> load_experiment("paper").method_configs[0].config.run.rounds
    20
    """
    options = options or ExperimentOptions()
    name = Path(source).stem if isinstance(source, str) else "run"
    content = check_top_level(rename_keys(read_source(source) if isinstance(source, str) else source))
    load_plugins(content.get("plugins", {}), Path(source).parent if isinstance(source, str) else Path())
    preset = content.get("preset", "paper")
    check_known("preset", [preset], builtin_names("presets"))
    own = modernise({key: value for key, value in content.items() if key not in TOP_LEVEL_KEYS})
    check_sections(own)
    presets = [read_builtin("presets", each) for each in builtin_names("presets")]
    file = Layer(tables=own, harmless=stored_values(own, content.get("identity"), presets, name))
    assumed, overrides = parse_overrides(options.assumed), parse_overrides(options.settings)
    methods, data_dirs = _select_methods(content, options.methods), DataDirs(parse_data_dirs(options.data))
    method_configs, given = [], GivenSettings()
    for scenario, changes in (content.get("scenarios") or {"": {}}).items():
        for method, layer in methods.items():
            layers = {  # a method keeps its own settings
                "file": file,
                f"scenario {scenario}": Layer(tables=modernise(changes)),
                "assumed": Layer(tables=assumed, is_checked=False),
                "--set": Layer(tables=overrides),
                f"method {method}": layer,
            }
            named = merged(list(layers.values()))
            first = Layer(tables=_preset_tables(preset, name, named, is_single=not method), is_checked=False)
            layers = {"preset": first, **layers, "--data": data_dirs.layer(named)}
            config = RunConfig.from_tables(merged(list(layers.values())))
            given.add(layers, config)
            method_configs.append(MethodConfig(scenario=scenario, method=method, config=config))
    data_dirs.check()
    for section, key in [(section, key) for section, table in overrides.items() for key in table]:
        if all(key in (method.tables.get(section) or {}) for method in methods.values()):
            raise InvalidInput(
                f"--set {section}.{key} has no effect: each method sets it itself; leave it out, "
                "or describe a method of your own in a file"
            )
    given.check()
    seeds = parse_seeds(options.seeds) if options.seeds else check_seeds(content.get("seeds", []))
    if "baseline" in content:
        check_known("baseline", [content["baseline"]], [*methods, *METHODS])
    return Experiment(
        name=name,
        title=content.get("title", name),
        method_configs=tuple(method_configs),
        seeds=seeds or (method_configs[0].config.run.seed,),
        baseline=content.get("baseline", "local" if "local" in methods else None),
    )


def read_source(source: str) -> dict[str, Any]:
    """The content of a file, of a built-in experiment, or of one that consists of a preset."""
    path = Path(source)
    if path.suffix == ".toml" or path.is_file():
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} is not valid TOML: {error}") from error
    presets, experiments = builtin_names("presets"), builtin_names("experiments")
    if source in presets:
        return {"preset": source}
    if source in experiments:
        return read_builtin("experiments", source)
    raise InvalidInput(f"no plan or file named {source!r}; {suggestion(source, [*presets, *experiments])}")


def load_plugins(files: Sequence[str] | Mapping[str, str], directory: Path) -> None:
    """Load the plug-in files that a plan lists, relative to it, or those that a stored plan was run with."""
    if isinstance(files, Mapping):
        registry.load_stored_plugins(files)
        return
    for name in files:
        registry.load_plugin(directory / name)


def stored_plugins() -> dict[str, dict[str, str]]:
    """What a stored plan says of plug-in files: path and digest of each, and nothing if there are none."""
    files = {str(each.path): each.digest for each in registry.loaded_plugins()}
    return {"plugins": files} if files else {}


def read_builtin(directory: str, name: str) -> dict[str, Any]:
    """A TOML file of this package."""
    return tomllib.loads((resources.files("vpdr.config") / directory / f"{name}.toml").read_text())


def builtin_names(directory: str) -> list[str]:
    """The names of the built-in `presets` or `experiments`."""
    names = [Path(file.name) for file in (resources.files("vpdr.config") / directory).iterdir()]
    return sorted(name.stem for name in names if name.suffix == ".toml" and name.stem != "methods")


def check_top_level(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of an experiment file, after a check of its top-level keys."""
    for key, (kind, description) in TOP_LEVEL_KEYS.items():
        if key in content and not isinstance(content[key], kind):
            raise InvalidInput(f"{key} must be {description}, got {content[key]!r}")
    for key in ("methods", "plugins"):
        for name in content.get(key, []):
            if not isinstance(name, str):
                raise InvalidInput(f"{key} must be a list of names, got {name!r} among them")
    for key in ("scenarios", "custom_methods"):
        check_names(key, content.get(key, {}))
        for name, table in content.get(key, {}).items():
            if not isinstance(table, Mapping) or not all(isinstance(part, Mapping) for part in table.values()):
                raise InvalidInput(f"[{key}.{name}] must hold tables of settings, got {table!r}")
    return content


def parse_overrides(settings: Iterable[str]) -> dict[str, Any]:
    """Several `section.key=value` as nested tables in the present spelling, the last one winning."""
    settings = list(settings)
    for text in settings:
        name, equals, _ = (part.strip() for part in text.partition("="))
        if equals and name and "." not in name and name not in SECTION_NAMES:
            raise InvalidInput(f"--set needs section.key=value, got {text!r}; {suggest_setting(name)}")
    return modernise(validation.parse_overrides(settings))


def parse_data_dirs(texts: Sequence[str]) -> dict[str, str]:
    """Several `benchmark=directory` as the directory of each benchmark."""
    data_dirs = {}
    for text in texts:
        name, equals, directory = text.partition("=")
        check_known("benchmark in --data", [name.strip()], benchmark_names())
        if not equals or not directory.strip():
            raise InvalidInput(f"--data needs benchmark=folder, got {text!r}")
        path = Path(directory.strip()).expanduser()
        is_hub_name = name.strip() == HUGGING_FACE and not path.exists()
        data_dirs[name.strip()] = directory.strip() if is_hub_name else str(path.absolute())
    return data_dirs


def _preset_tables(preset: str, name: str, named: Mapping[str, Any], *, is_single: bool) -> dict[str, Any]:
    """A preset, with its method where a plan is a single run and names no method itself."""
    tables = deep_merge({"run": {"name": name}}, read_builtin("presets", preset))
    names_method = any("kind" in named.get(section, {}) for section in ("mechanism", "regulariser"))
    framework = FRAMEWORKS.get(named.get("framework", {}).get("kind", ""))
    if not is_single or names_method or (framework is not None and not framework.has_uploads):
        return tables
    return deep_merge(tables, METHODS.get(PRESET_METHODS.get(preset, ""), {}))


def _select_methods(content: Mapping[str, Any], selected: str | None) -> dict[str, Layer]:
    """The settings of each method: registered ones, and those of the file."""
    available = {name: Layer(tables=modernise(table), harmless={}) for name, table in METHODS.items()}
    for name, table in content.get("custom_methods", {}).items():
        available[name] = Layer(tables=modernise(table))
    names = [name.strip() for name in selected.split(",")] if selected is not None else content.get("methods", ())
    check_known("method", names, available)
    return {name: available[name] for name in names} or {"": Layer(tables={})}


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds of `0..4`, `3` or `0,2,5`."""
    message = f"seeds must look like 0..4, 3 or 0,2,5, got {text!r}"
    try:
        first, dots, last = text.partition("..")
        seeds = range(int(first), int(last) + 1) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(message) from None
    if not seeds:
        raise InvalidInput(f"{message}: none are left")
    return check_seeds(list(seeds))


def check_seeds(seeds: list[int]) -> tuple[int, ...]:
    """Refuse seeds that are not different whole numbers."""
    if any(type(seed) is not int or seed < 0 for seed in seeds) or len(set(seeds)) != len(seeds):
        raise InvalidInput(f"seeds must be different whole numbers of at least 0, got {seeds}")
    return tuple(seeds)


EXPERIMENT_FILE = "experiment.json"


def experiment_to_data(experiment: Experiment) -> dict[str, Any]:
    """An experiment as plain data, which `stored_experiment` reads again."""
    return {
        "schema": "vpdr-experiment",
        "version": 1,
        "name": experiment.name,
        "title": experiment.title,
        "seeds": list(experiment.seeds),
        "baseline": experiment.baseline,
        **stored_plugins(),
        "methods": [
            {"scenario": each.scenario, "method": each.method, "plan": each.config.to_dict()}
            for each in experiment.method_configs
        ],
    }


def stored_experiment(directory: Path) -> Experiment:
    """What was run in a directory: a comparison by its experiment.json, or a single run by its plan.toml."""
    file, plan = directory / EXPERIMENT_FILE, directory / "plan.toml"
    if not file.exists():
        if plan.exists():
            experiment = load_experiment(str(plan))
            return replace(experiment, name=experiment.method_configs[0].config.run.name)
        raise InvalidInput(
            f"{directory} holds no run that can be resumed: no plan.toml and no {EXPERIMENT_FILE}; a comparison of "
            "version 0.1 needs its whole command again with --resume --out DIR"
        )
    try:
        data = json.loads(file.read_bytes())
        registry.load_stored_plugins(data.get("plugins", {}))
        return Experiment(
            name=data["name"],
            title=data["title"],
            seeds=tuple(data["seeds"]),
            baseline=data["baseline"],
            method_configs=tuple(
                MethodConfig(scenario=each["scenario"], method=each["method"], config=RunConfig.from_dict(each["plan"]))
                for each in data["methods"]
            ),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise DamagedFile(f"{file} is not whole; give the whole command again with --resume --out DIR") from error
