"""A plug-in of every kind, registered from outside, runs, calibrates and is audited without any other change."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import vpdr
from tests.conftest import blobs
from vpdr import (
    FRAMEWORKS,
    MECHANISMS,
    REGULARISERS,
    SUMMARISERS,
    AuditConfig,
    AuditOptions,
    ClassMeans,
    Igpp,
    Ledger,
    Registry,
    ReleaseContext,
)
from vpdr.audits import make_noise_factory
from vpdr.cli import main
from vpdr.data import BENCHMARK_SPECS, DomainSpec, SplitConfig
from vpdr.data.files import RawDomain
from vpdr.data.images import ImageArray
from vpdr.encoder import BACKBONES
from vpdr.frameworks import FedProto
from vpdr.mechanisms import MechanismConfig, MechanismTraits
from vpdr.regulariser import Regulariser
from vpdr.rng import Streams

SMALL = ("benchmark.kind=synthetic", "benchmark.samples=40", "model.dim=8", "run.rounds=2")


@dataclass(frozen=True, kw_only=True)
class DummyMechanism:
    """IGPP by another name, with an option of its own."""

    traits: ClassVar[MechanismTraits] = MechanismTraits()
    igpp: Igpp
    factor: float

    @classmethod
    def from_config(cls, config: MechanismConfig) -> "DummyMechanism":
        return cls(igpp=Igpp.from_config(config), factor=float(config.options.get("factor", 1.0)))

    @property
    def adjacency(self):
        return self.igpp.adjacency

    def receipt_for(self, context: ReleaseContext = ReleaseContext()):
        return self.igpp.receipt_for(context)

    def release(self, vectors, labels, context: ReleaseContext = ReleaseContext()):
        release = self.igpp.release(vectors, labels, context)
        scaled = dataclasses.replace(release.prototypes, vectors=self.factor * release.prototypes.vectors)
        return dataclasses.replace(release, prototypes=scaled)


@dataclass(frozen=True, kw_only=True, slots=True)
class DummyFramework(FedProto):
    """FedProto with an option of its own."""

    push: float = 0.0


@dataclass(frozen=True)
class DummyRegularisation:
    """A constant penalty."""

    is_noop: ClassVar[bool] = False
    penalty: float = 0.5

    @classmethod
    def from_config(cls, clip_norm: float, options: dict[str, Any]) -> "DummyRegularisation":
        return cls(**options)

    def make_regulariser(self, head: nn.Module) -> Regulariser:
        return DummyRegulariser(self.penalty)


class DummyRegulariser(Regulariser):
    def __init__(self, penalty: float) -> None:
        super().__init__()
        self.penalty = penalty

    def loss(self, features, logits, weights=None):
        return torch.tensor(self.penalty)


class DummySummariser(ClassMeans):
    """Class means by another name."""


def read_noise(root, domain, issues) -> RawDomain:
    images = np.random.default_rng(0).integers(256, size=(40, 8, 8), dtype=np.uint8)
    return RawDomain(labels=np.arange(40) % 2, content=ImageArray(images, domain))


DUMMY_BENCHMARK = dataclasses.replace(
    BENCHMARK_SPECS["pacs"],
    name="dummy",
    domains=(DomainSpec(name="grey", title="Grey", train=(20, 20)),),
    class_names=("even", "odd"),
    split_config=SplitConfig(),
    read_domain=read_noise,
)
PLUG_INS: list[tuple[Registry, Any]] = [
    (MECHANISMS, DummyMechanism),
    (FRAMEWORKS, DummyFramework),
    (REGULARISERS, DummyRegularisation),
    (SUMMARISERS, DummySummariser),
    (BENCHMARK_SPECS, DUMMY_BENCHMARK),
    (BACKBONES, BACKBONES["efficientnet_lite0"]),
]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for registry, plug_in in PLUG_INS:
        registry.register("dummy", plug_in)
    yield
    for registry, _ in PLUG_INS:
        registry.unregister("dummy")


def command(*arguments: str, monkeypatch) -> int:
    monkeypatch.setattr("sys.argv", ["vpdr", *arguments])
    try:
        code = main()
    except SystemExit as stop:
        code = stop.code
    return code or 0


def test_a_mechanism_runs_with_its_own_options() -> None:
    same = vpdr.run(vpdr.load_config("paper", *SMALL, "mechanism.kind=igpp"))
    config = vpdr.load_config("paper", *SMALL, "mechanism.kind=dummy", "mechanism.dummy.factor=1")
    record = vpdr.run(config)
    assert record["plan"]["mechanism"]["kind"] == "dummy"
    assert record["final"] == same["final"]
    other = vpdr.run(vpdr.load_config("paper", *SMALL, "mechanism.kind=dummy", "mechanism.dummy.factor=9"))
    assert other["rounds"][-1]["clients"] != record["rounds"][-1]["clients"]
    assert other["privacy"]["level"] == "conditional"


def test_a_mechanism_calibrates(monkeypatch, capsys) -> None:
    assert command("calibrate", "--mechanism", "dummy", "--json", monkeypatch=monkeypatch) == 0
    dummy = json.loads(capsys.readouterr().out)
    assert command("calibrate", "--mechanism", "igpp", "--json", monkeypatch=monkeypatch) == 0
    igpp = json.loads(capsys.readouterr().out)
    assert dummy["epsilon_spent"] == pytest.approx(igpp["epsilon_spent"])


def test_a_mechanism_is_audited(monkeypatch, capsys) -> None:
    config = AuditConfig(trials=60, noise=make_noise_factory(1))
    result = vpdr.audit(AuditOptions(mechanism="dummy", rounds=1), config)
    assert not result.refuted
    assert result.claim.epsilon == pytest.approx(1.0)


def test_a_mechanism_passes_the_contract_of_mechanisms() -> None:
    config = MechanismConfig(
        budget=vpdr.Budget(1.0, 1e-5),
        releases=2,
        clip_norm=5.0,
        dim=32,
        classes=4,
        adjacency=vpdr.Adjacency.REPLACE_SAME_LABEL,
        accountant="exact",
        samples_per_class=0,
        rng=Streams(0).generator("release-space"),
        options={},
    )
    mechanism = MECHANISMS["dummy"].from_config(config)
    ledger = Ledger(client="a", budget=config.budget)
    for round in (1, 2):
        release = mechanism.release(*blobs(0))
        assert release.receipt == mechanism.receipt_for()
        release.charge_to(ledger, round=round)
    with pytest.raises(vpdr.BudgetExceeded):
        mechanism.release(*blobs(0)).charge_to(ledger, round=3)


def test_a_framework_runs_with_its_own_options() -> None:
    config = vpdr.load_config("paper", *SMALL, "framework.kind=dummy", "framework.dummy.push=2")
    same = vpdr.load_config("paper", *SMALL, "framework.kind=fedproto")
    assert vpdr.run(config)["final"] == vpdr.run(same)["final"]
    with pytest.raises(vpdr.InvalidInput, match="pusch"):
        vpdr.load_config("paper", *SMALL, "framework.kind=dummy", "framework.dummy.pusch=2")


def test_a_regulariser_runs_with_its_own_options() -> None:
    config = vpdr.load_config("paper", *SMALL, "regulariser.kind=dummy", "regulariser.dummy.penalty=0.25")
    client = next(iter(vpdr.run(config)["rounds"][0]["clients"].values()))
    assert client["losses"]["guide"] == pytest.approx(0.25)
    with pytest.raises(vpdr.InvalidInput, match=r"unknown setting in \[regulariser\.dummy\]: 'penalti'"):
        vpdr.load_config("paper", *SMALL, "regulariser.kind=dummy", "regulariser.dummy.penalti=0.25")


def test_a_summariser_runs() -> None:
    record = vpdr.run(vpdr.load_config("paper", *SMALL, "release.summariser=dummy"))
    same = vpdr.run(vpdr.load_config("paper", *SMALL, "release.summariser=means"))
    assert record["final"] == same["final"]


def test_a_benchmark_and_a_backbone_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = vpdr.load_config(
        "paper",
        "benchmark.kind=dummy",
        f"benchmark.root={tmp_path}",
        "benchmark.pixels=32",
        "model.backbone=dummy",
        "model.weights=random",
        "model.dim=8",
        "run.rounds=1",
    )
    record = vpdr.run(config)
    assert record["clients"] == ["grey"]


def test_an_entry_point_registers_a_plug_in(monkeypatch) -> None:
    point = metadata.EntryPoint("outside", f"{__name__}:DummyMechanism", "vpdr.mechanisms")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == point.group else [])
    registry = Registry("mechanism", {"igpp": Igpp})
    assert registry["outside"] is DummyMechanism
    with pytest.raises(vpdr.InvalidInput, match="already"):
        registry.register("outside", Igpp)
