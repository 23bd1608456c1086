"""ProtoPFL frameworks, one file for each paper: client summary, server aggregation and client loss."""

from typing import Any

from vpdr.frameworks.aggregation import merge
from vpdr.frameworks.base import FeatureMap, Framework, FrameworkState, PredictionInputs, ServerContext, weighted_mean
from vpdr.frameworks.fedpcl import FedPcl
from vpdr.frameworks.fedplvm import FedPlvm
from vpdr.frameworks.fedproto import FedProto
from vpdr.frameworks.fedtgp import FedTgp
from vpdr.frameworks.fpl import Fpl
from vpdr.frameworks.local import Local
from vpdr.frameworks.mpft import Mpft
from vpdr.registry import Registry

FRAMEWORKS: Registry[type[Framework[Any]]] = Registry(
    "framework",
    {
        "local": Local,
        "fedproto": FedProto,
        "fedpcl": FedPcl,
        "fpl": Fpl,
        "fedplvm": FedPlvm,
        "fedtgp": FedTgp,
        "mpft": Mpft,
    },
)
