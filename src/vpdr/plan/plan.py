"""One run, fully decided."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vpdr.errors import InvalidInput
from vpdr.plan.accounted import check_accounted
from vpdr.plan.accumulation import check_accumulated
from vpdr.plan.combinations import check_combinations, fitted_options
from vpdr.plan.method_sections import FrameworkSection, MechanismSection, RegulariserSection
from vpdr.plan.sections import (
    BenchmarkSection,
    BudgetSection,
    ModelSection,
    ParticipationSection,
    ReleaseSection,
    RunSection,
    TrainSection,
    WeightsSection,
)
from vpdr.plan.sources import KEYS as TOP_LEVEL
from vpdr.plan.transcript import check_transcript
from vpdr.plan.values import fitted, known

# settings that came later: a plan that does not use them keeps the name, and so the runs, that it always had
_LATER = (("run", "measure_every", 1), ("mechanism", "metric", "plain"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Every setting of one run. Two equal plans give the same record."""

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
        check_combinations(self)
        check_transcript(self)
        check_accumulated(self)
        check_accounted(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Plan":
        """A plan from nested tables; a key that no section knows is refused with a suggestion."""
        sections = {section.name: section for section in dataclasses.fields(cls)}
        known("section", data, sections, also=TOP_LEVEL)
        built = {}
        for name, content in data.items():
            if not isinstance(content, Mapping):
                raise InvalidInput(f"{name} must be a table of settings, got {content!r}; write [{name}]")
            built[name] = _section(name, sections[name].default_factory, content)
        return cls(**built)

    def to_data(self) -> dict[str, Any]:
        """The plan as nested tables, defaults included."""
        data = dataclasses.asdict(self)
        options = data["framework"].pop("options")
        return {**data, "framework": {**data["framework"], **options}}

    @property
    def identity(self) -> str:
        """A name for everything that decides the result, wherever its data lie."""
        data = self.to_data()
        data["run"].pop("name")
        data["benchmark"].pop("root")
        for section, key, usual in _LATER:
            if data[section][key] == usual:
                data[section].pop(key)
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def releases(self) -> int:
        """How many releases share the budget."""
        return min(self.release.count or self.run.rounds, self.run.rounds)


def _section(name: str, make: Any, content: Mapping[str, Any]) -> Any:
    """One section from its table; sub-tables of the framework are its options."""
    fields = {each.name: each for each in dataclasses.fields(make)}
    options = {}
    if "options" in fields:
        fields.pop("options")
        options = fitted_options({k: v for k, v in content.items() if isinstance(v, Mapping)})
        content = {key: value for key, value in content.items() if key not in options}
    known(f"setting in [{name}]", content, fields)
    values = {key: fitted(f"{name}.{key}", value, fields[key].type) for key, value in content.items()}
    try:
        return make(**values, **({"options": options} if options else {}))
    except InvalidInput as error:
        raise InvalidInput(f"[{name}] {error}") from error
