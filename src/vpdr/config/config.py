"""The config of one run: all its sections, as dicts and as a hash."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vpdr.config.renames import legacy_spelling, modernise
from vpdr.config.rules import check_config, coerce_options
from vpdr.config.sections import (
    BenchmarkSection,
    BudgetSection,
    FrameworkSection,
    MechanismSection,
    ModelSection,
    ParticipationSection,
    RegulariserSection,
    ReleaseSection,
    RunSection,
    TrainSection,
    WeightsSection,
)
from vpdr.errors import InvalidInput
from vpdr.validation import check_known, coerce

TOP_LEVEL_KEYS: dict[str, tuple[type, str]] = {
    "title": (str, "a text"),
    "preset": (str, "the name of a preset"),
    "seeds": (list, "a list of whole numbers"),
    "methods": (list, "a list of names"),
    "baseline": (str, "the name of a method"),
    "scenarios": (dict, "a table of tables"),
    "custom_methods": (dict, "a table of tables"),
}

# settings that were added later: at their default they are not hashed, so that older configs keep their hash
_DEFAULTED_LATER = (("run", "measure_every", 1),)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """All settings of one run. Two runs of equal configs give the same record.

    Every section has defaults; see `vpdr.config.sections` for each setting.

    Raises:
        InvalidInput: settings contradict each other, or the guarantee is weaker than `budget.require`.

    >>> config = RunConfig.from_dict({"run": {"rounds": 3}, "mechanism": {"kind": "vpp"}})
    >>> config.run.rounds, config.mechanism.kind, config.releases
    (3, 'vpp', 3)
    >>> RunConfig.from_dict(config.to_dict()) == config
    True
    """

    run: RunSection = field(default_factory=RunSection)
    benchmark: BenchmarkSection = field(default_factory=BenchmarkSection)
    model: ModelSection = field(default_factory=ModelSection)
    train: TrainSection = field(default_factory=TrainSection)
    framework: FrameworkSection = field(default_factory=FrameworkSection)
    mechanism: MechanismSection = field(default_factory=MechanismSection)
    regulariser: RegulariserSection = field(default_factory=RegulariserSection)
    budget: BudgetSection = field(default_factory=BudgetSection)
    release: ReleaseSection = field(default_factory=ReleaseSection)
    participation: ParticipationSection = field(default_factory=ParticipationSection)
    weights: WeightsSection = field(default_factory=WeightsSection)

    def __post_init__(self) -> None:
        check_config(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RunConfig":
        """A config from nested tables; settings that are left out have their default.

        Args:
            data: section -> setting -> value; sub-tables of framework, mechanism and regulariser are
                options of the plug-in of that name.

        Raises:
            InvalidInput: a section or setting is unknown (with a suggestion), or has a value of another type.
        """
        data = modernise(data)
        sections = {section.name: section for section in dataclasses.fields(cls)}
        check_known("section", data, sections, other_suggestions=TOP_LEVEL_KEYS)
        built = {}
        for name, content in data.items():
            if not isinstance(content, Mapping):
                raise InvalidInput(f"{name} must be a table of settings, got {content!r}; write [{name}]")
            built[name] = _parse_section(name, sections[name].default_factory, content)
        return cls(**built)

    def to_dict(self) -> dict[str, Any]:
        """The config as nested tables, defaults included; `from_dict` reads it back."""
        data = dataclasses.asdict(self)
        for section in data.values():
            section.update(section.pop("options", {}))
        return data

    @property
    def config_hash(self) -> str:
        """16 hex digits of all settings that decide the result; name and data directory do not."""
        data = legacy_spelling(self.to_dict())
        data["run"].pop("name")
        data["benchmark"].pop("root")
        for section, key, default in _DEFAULTED_LATER:
            if data[section][key] == default:
                data[section].pop(key)
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def releases(self) -> int:
        """How many releases share the budget."""
        return min(self.release.count or self.run.rounds, self.run.rounds)


def _parse_section(name: str, section_type: Any, content: Mapping[str, Any]) -> Any:
    fields = {each.name: each for each in dataclasses.fields(section_type)}
    options: dict[str, dict[str, Any]] = {}
    if fields.pop("options", None) is not None:
        tables = {key: value for key, value in content.items() if isinstance(value, Mapping)}
        options = coerce_options(name, tables, fields)
        content = {key: value for key, value in content.items() if key not in tables}
    check_known(f"setting in [{name}]", content, fields)
    values = {key: coerce(f"{name}.{key}", value, fields[key].type) for key, value in content.items()}
    try:
        return section_type(**values, **({"options": options} if options else {}))
    except InvalidInput as error:
        raise InvalidInput(f"[{name}] {error}") from error
