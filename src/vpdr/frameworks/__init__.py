"""One file per ProtoPFL framework: how prototypes are made, merged and used."""

from typing import Any

from vpdr.frameworks.base import Framework, Now, Path, ServerMemory, View
from vpdr.frameworks.fedpcl import FedPcl
from vpdr.frameworks.fedplvm import FedPlvm
from vpdr.frameworks.fedproto import FedProto
from vpdr.frameworks.fedtgp import FedTgp
from vpdr.frameworks.fpl import Fpl
from vpdr.frameworks.local import Local
from vpdr.frameworks.mpft import Mpft

FRAMEWORKS: dict[str, type[Framework[Any]]] = {
    "local": Local,
    "fedproto": FedProto,
    "fedpcl": FedPcl,
    "fpl": Fpl,
    "fedplvm": FedPlvm,
    "fedtgp": FedTgp,
    "mpft": Mpft,
}

__all__ = [
    "FRAMEWORKS",
    "FedPcl",
    "FedPlvm",
    "FedProto",
    "FedTgp",
    "Fpl",
    "Framework",
    "Local",
    "Mpft",
    "Now",
    "Path",
    "ServerMemory",
    "View",
]
