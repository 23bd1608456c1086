"""Privacy mechanisms: from a client's features to a release, with its privacy cost."""

from vpdr.mechanisms.base import (
    Mechanism,
    MechanismConfig,
    MechanismTraits,
    NoiseSource,
    ReleaseContext,
    SeededNoise,
    SystemNoise,
)
from vpdr.mechanisms.igpp import Igpp, NoPrivacy
from vpdr.mechanisms.rapp import Rapp
from vpdr.mechanisms.rapp_projection import ReleaseProjection
from vpdr.mechanisms.vpp import SELECTIONS, NoiseAllocation, SelectionConfig, Vpp
from vpdr.registry import Registry

MECHANISMS: Registry[type[Mechanism]] = Registry(
    "mechanism", {"none": NoPrivacy, "igpp": Igpp, "vpp": Vpp, "rapp": Rapp}
)

__all__ = [
    "MECHANISMS",
    "SELECTIONS",
    "Igpp",
    "Mechanism",
    "MechanismConfig",
    "MechanismTraits",
    "NoPrivacy",
    "NoiseAllocation",
    "NoiseSource",
    "Rapp",
    "ReleaseContext",
    "ReleaseProjection",
    "SeededNoise",
    "SelectionConfig",
    "SystemNoise",
    "Vpp",
]
