"""From features to a release. The only room that draws privacy noise."""

from vpdr.mechanisms.base import Facts, Mechanism, Occasion
from vpdr.mechanisms.focus import SELECTIONS, Focus, Groups
from vpdr.mechanisms.identity import Identity
from vpdr.mechanisms.igpp import Igpp
from vpdr.mechanisms.noise import NoiseSource, SeededNoise, SystemNoise
from vpdr.mechanisms.rapp import Geometry, Rapp
from vpdr.mechanisms.vpp import Vpp

MECHANISMS: dict[str, type[Mechanism]] = {"none": Identity, "igpp": Igpp, "vpp": Vpp, "rapp": Rapp}

__all__ = [
    "MECHANISMS",
    "SELECTIONS",
    "Facts",
    "Focus",
    "Geometry",
    "Groups",
    "Identity",
    "Igpp",
    "Mechanism",
    "NoiseSource",
    "Occasion",
    "Rapp",
    "SeededNoise",
    "SystemNoise",
    "Vpp",
]
