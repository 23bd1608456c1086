"""Options of plug-ins: unknown names and wrong types are refused when the config is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from vpdr.config import ExperimentOptions, RunConfig, load_experiment
from vpdr.config.config import FrameworkSection, RegulariserSection
from vpdr.frameworks import FRAMEWORKS, FedProto
from vpdr.mechanisms import MECHANISMS, Igpp, MechanismConfig
from vpdr.regulariser import REGULARISERS, NoRegularisation
from vpdr.validation import InvalidInput, coerce


class ScaledIgpp:
    """A mechanism with the options `scale` and `offset`."""

    traits = Igpp.traits

    @classmethod
    def from_config(cls, config: MechanismConfig) -> Igpp:
        float(config.options.get("scale", 1.0))
        coerce("offset", config.options.get("offset", 0), int)
        return Igpp.from_config(config)


@dataclass(frozen=True, kw_only=True)
class FedSum(FedProto):
    """A framework of a module whose annotations are strings."""

    extra: int = 0
    push: float = 0.0
    limit: int | None = None


@dataclass(frozen=True)
class Penalty:
    """A regulariser of a module whose annotations are strings."""

    is_noop: ClassVar[bool] = True
    strength: float = 0.5

    @classmethod
    def from_config(cls, clip_norm: float, options: Mapping[str, Any]) -> NoRegularisation:
        cls(**options)
        return NoRegularisation()


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    plug_ins = ((MECHANISMS, ScaledIgpp), (FRAMEWORKS, FedSum), (REGULARISERS, Penalty))
    for registry, plug_in in plug_ins:
        registry.register("mine", plug_in)
    yield
    for registry, _ in plug_ins:
        registry.unregister("mine")


def config_of(*settings: str) -> RunConfig:
    return load_experiment("paper", ExperimentOptions(settings=settings)).method_configs[0].config


@pytest.mark.parametrize("kind", ["igpp", "mine"])
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("mechanism.mine.scal=3", "unknown setting in [mechanism.mine]: 'scal'; did you mean 'scale'?"),
        ("mechanism.vpp.foo=3", "unknown setting in [mechanism.vpp]: 'foo'; choose one of cap, keep, selection, share"),
        ("mechanism.none.foo=3", "unknown setting in [mechanism.none]: 'foo'; there are none, leave it out"),
        ("mechanism.mine.offset=1.5", "[mechanism.mine] offset must be a whole number, got 1.5"),
        ("mechanism.mine.scale=abc", "[mechanism.mine] ValueError: could not convert string to float: 'abc'"),
        ("mechanism.mine.scale=[1]", "[mechanism.mine] TypeError: float() argument must be"),
        ("regulariser.mine.strenght=1", "unknown setting in [regulariser.mine]: 'strenght'; did you mean 'strength'?"),
        ("regulariser.mine.strength=abc", "regulariser.mine.strength must be a number, got 'abc'"),
        ("framework.mine.extra=abc", "framework.mine.extra must be a whole number, got 'abc'"),
    ],
)
def test_an_option_that_a_plug_in_cannot_use_is_refused_in_one_line(kind, setting, message) -> None:
    with pytest.raises(InvalidInput) as caught:
        config_of(f"mechanism.kind={kind}", setting)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_options_that_are_read_are_accepted() -> None:
    config = config_of("mechanism.kind=mine", "mechanism.mine.scale=3", "mechanism.mine.offset=2")
    assert config.mechanism.options == {"mine": {"scale": 3, "offset": 2}}


def test_annotations_may_be_strings_or_of_any_type() -> None:
    config = config_of(
        "framework.kind=mine", "framework.mine.extra=3", "framework.mine.push=2", "framework.mine.limit=4"
    )
    assert config.framework.options == {"mine": {"extra": 3, "push": 2.0, "limit": 4}}
    assert type(config.framework.options["mine"]["push"]) is float
    assert config_of("regulariser.kind=mine", "regulariser.mine.strength=1").regulariser.options == {
        "mine": {"strength": 1.0}
    }


@pytest.mark.parametrize(
    "section",
    [
        {"framework": FrameworkSection(kind="mine", options={"mine": {"foo": 1}})},
        {"regulariser": RegulariserSection(kind="mine", options={"mine": {"foo": 1}})},
    ],
)
def test_options_of_a_config_that_is_made_in_python_are_refused_too(section) -> None:
    with pytest.raises(InvalidInput, match="foo"):
        RunConfig(**section)
