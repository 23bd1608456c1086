"""One plug-in of every kind, as another package would write it; the contract tests register them all."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from vpdr import FRAMEWORKS, MECHANISMS, REGULARISERS, SUMMARISERS, ClassMeans, Igpp, Registry, ReleaseContext
from vpdr.data import BENCHMARK_SPECS
from vpdr.data.benchmark import SplitConfig
from vpdr.data.images import ImageArray
from vpdr.data.spec import DomainSpec, RawDomain
from vpdr.encoder.zoo import BACKBONES
from vpdr.frameworks import FedProto
from vpdr.mechanisms import MechanismConfig, MechanismTraits
from vpdr.regulariser import Regulariser


@dataclass(frozen=True, kw_only=True)
class DummyMechanism:
    """IGPP by another name, with an option of its own."""

    traits: ClassVar[MechanismTraits] = MechanismTraits(is_exact=True)
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
        return release.map_prototypes(lambda each: dataclasses.replace(each, vectors=self.factor * each.vectors))


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


def with_dummies(registry: Registry) -> dict[str, Any]:
    """Everything in a registry and the plug-in of that kind from here: the subjects of a contract test."""
    return dict(registry) | {"dummy": next(plug_in for kind, plug_in in PLUG_INS if kind is registry)}
