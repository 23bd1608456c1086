"""Audits and self-tests of mechanisms that are registered by other packages."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import pytest
import torch

from tests.unit.audits.audit_cases import ScaledNoise
from vpdr.audits.selftest import CHECKS, SelfTestFailed
from vpdr.cli import main
from vpdr.mechanisms import MECHANISMS, Igpp, MechanismConfig, MechanismTraits, ReleaseContext
from vpdr.privacy import Adjacency, Receipt
from vpdr.types import Prototypes, Release
from vpdr.validation import InvalidInput

OPTIONS = ("--epsilon", "8", "--rounds", "2", "--trials", "120", "--seed", "3", "--pair", "antipodal")


@dataclass(frozen=True)
class Plugin:
    """Igpp behind a class of its own, with a part of its noise."""

    inner: Igpp
    factor: ClassVar[float] = 1.0
    traits: ClassVar[MechanismTraits] = MechanismTraits()

    @property
    def adjacency(self) -> Adjacency:
        return self.inner.adjacency

    @classmethod
    def from_config(cls, config: MechanismConfig) -> Self:
        return cls(Igpp.from_config(config))

    def receipt_for(self, context: ReleaseContext = ReleaseContext()) -> Receipt:
        return self.inner.receipt_for(self._with_less_noise(context))

    def release(self, vectors, labels, context: ReleaseContext = ReleaseContext()) -> Release:
        return self.inner.release(vectors, labels, self._with_less_noise(context))

    def _with_less_noise(self, context: ReleaseContext) -> ReleaseContext:
        return dataclasses.replace(context, noise=ScaledNoise(context.noise, self.factor))


class HalfNoise(Plugin):
    factor = 0.5


class Dropping(Plugin):
    """It sends half of the coordinates."""

    def release(self, vectors, labels, context: ReleaseContext = ReleaseContext()) -> Release:
        mask = torch.arange(vectors.shape[1]) % 2
        release = super().release(vectors * mask, labels, context)
        return release.map_prototypes(lambda each: Prototypes(each.vectors * mask, each.labels))


class Accumulating(Plugin):
    """Its state is private: only mechanisms known to the audit have a public one."""

    traits = MechanismTraits(is_accumulating=True)


class OnlySameLabel(Plugin):
    @classmethod
    def from_config(cls, config: MechanismConfig) -> Self:
        if config.adjacency is not Adjacency.REPLACE_SAME_LABEL:
            raise InvalidInput(f"adjacency {config.adjacency} is not supported")
        return super().from_config(config)


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[str]:
    MECHANISMS.register("plugin", request.param)
    yield "plugin"
    MECHANISMS.unregister("plugin")


@pytest.mark.parametrize(
    ("registered", "refuted"),
    [(Plugin, False), (Accumulating, False), (HalfNoise, True)],
    indirect=["registered"],
    ids=["sound", "accumulating", "half the noise"],
)
def test_a_registered_mechanism_is_audited(registered, refuted, capsys) -> None:
    assert main(["audit", "--mechanism", registered, *OPTIONS, "--json"]) == int(refuted)
    result = json.loads(capsys.readouterr().out)
    assert result["audited"]["mechanism"] == registered
    assert result["claimed"]["epsilon"] == pytest.approx(8, rel=1e-3)
    assert result["refuted"] is refuted


@pytest.mark.parametrize("registered", [OnlySameLabel], indirect=True)
def test_the_self_tests_cover_a_registered_mechanism(registered) -> None:
    assert f"{registered} " in CHECKS["noise of mechanisms"]()
    message = CHECKS["uploads"]()
    assert message.endswith(f"; not supported: {registered} replace-one, {registered} add-remove")


@pytest.mark.parametrize("registered", [Dropping], indirect=True)
def test_the_self_tests_accept_coordinates_that_are_dropped(registered) -> None:
    assert f"{registered} " in CHECKS["noise of mechanisms"]()


@pytest.mark.parametrize("registered", [HalfNoise], indirect=True)
def test_the_self_tests_notice_too_little_noise_of_a_registered_mechanism(registered) -> None:
    with pytest.raises(SelfTestFailed, match=f"^{registered}: one sample shows"):
        CHECKS["noise of mechanisms"]()
