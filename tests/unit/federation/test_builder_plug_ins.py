"""Plug-ins of other packages: built from a config by name, with options of their own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.unit.federation.conftest import tiny
from tests.unit.federation.test_rounds import final
from vpdr.config import RunConfig
from vpdr.federation.builder import build
from vpdr.mechanisms import MECHANISMS, Igpp, MechanismConfig, MechanismTraits
from vpdr.regulariser import REGULARISERS, NoRegularisation
from vpdr.validation import InvalidInput


class Recording:
    """Remembers what a plug-in was built from."""

    built_from: ClassVar[dict]


class MyMechanism(Recording):
    traits = Igpp.traits

    @classmethod
    def from_config(cls, config: MechanismConfig) -> Igpp:
        cls.built_from = dict(config.options)
        return Igpp.from_config(config)


@dataclass
class MyRegulariser(Recording):
    is_noop = True
    depth: int  # a regulariser's options are the parameters of its class

    @classmethod
    def from_config(cls, clip_norm: float, options) -> NoRegularisation:
        cls.built_from = {"clip_norm": clip_norm, **options}
        return NoRegularisation()


@dataclass(frozen=True, kw_only=True, slots=True)
class InexactIgpp(Igpp):
    """IGPP that does not state that it is exact."""

    traits: ClassVar[MechanismTraits] = MechanismTraits()


@pytest.fixture
def plugins() -> Iterator[None]:
    MECHANISMS.register("mine", MyMechanism)
    MECHANISMS.register("inexact", InexactIgpp)
    REGULARISERS.register("mine", MyRegulariser)
    yield
    MECHANISMS.unregister("mine")
    MECHANISMS.unregister("inexact")
    REGULARISERS.unregister("mine")


@pytest.mark.usefixtures("plugins")
def test_a_plugin_gets_its_own_options() -> None:
    config = tiny("mechanism.kind=mine", "mechanism.mine.width=3", "regulariser.kind=mine", "regulariser.mine.depth=2")
    build(config)
    assert MyMechanism.built_from["width"] == 3
    assert MyMechanism.built_from["accumulate"] is False
    assert (MyRegulariser.built_from["depth"], MyRegulariser.built_from["clip_norm"]) == (2, 5.0)
    assert RunConfig.from_dict(config.to_dict()) == config


@pytest.mark.usefixtures("plugins")
def test_a_mechanism_of_another_package_runs_as_the_one_that_it_wraps() -> None:
    assert final(tiny("mechanism.kind=mine")).final == final(tiny("mechanism.kind=igpp")).final


@pytest.mark.usefixtures("plugins")
def test_a_mechanism_that_does_not_state_that_it_is_exact_is_not_proved() -> None:
    privacy = final(tiny("mechanism.kind=inexact", "budget.require=conditional", source="strict")).privacy
    assert (privacy.level, privacy.expected_level) == ("conditional", "conditional")
    assert any("floating point" in words for words in privacy.not_covered)
    assert not any("trained on the private samples" in words for words in privacy.not_covered)
    with pytest.raises(InvalidInput, match=r"set mechanism\.kind to one with exact noise"):
        tiny("mechanism.kind=inexact", source="strict")
    exact = final(tiny("mechanism.kind=igpp", source="strict")).privacy
    assert exact.level == "proved"
    assert not any("floating point" in words for words in exact.not_covered)
