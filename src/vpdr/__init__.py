"""Private prototypes for personalised federated learning.

Mechanisms, ledgers and DCR work on plain arrays and in your own training loop. `load_config`, `run`, `compare`,
`build`, `attack` and `audit` are what the command line calls. `Backbone` is an encoder of your own. Plug-ins are
added to the registries `MECHANISMS`, `FRAMEWORKS`, `REGULARISERS`, `SUMMARISERS`, `BACKBONES` and `METHODS`, here or
in a file that `load_plugin` loads.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vpdr.api import attack, audit, compare, load_config, run, run_experiment
    from vpdr.attacks import AttackConfig
    from vpdr.audits import AuditConfig, AuditOptions
    from vpdr.client import Client, evaluate_client, predict
    from vpdr.config import RunConfig
    from vpdr.config.methods import METHODS
    from vpdr.data import Dataset
    from vpdr.encoder.backbone import Backbone
    from vpdr.encoder.zoo import BACKBONES, load_backbone
    from vpdr.federation import Federation, RunOptions, Server, build
    from vpdr.frameworks import FRAMEWORKS, merge
    from vpdr.mechanisms import MECHANISMS, Igpp, NoPrivacy, Rapp, ReleaseProjection, SelectionConfig, Vpp
    from vpdr.mechanisms.base import ReleaseContext, SeededNoise, SystemNoise
    from vpdr.privacy import Adjacency, Budget, EncoderKind, GuaranteeLevel, Receipt
    from vpdr.privacy.ledger import BudgetExceeded, Charge, Ledger
    from vpdr.privacy.ledger_file import LedgerFile
    from vpdr.prototypes import SUMMARISERS, ClassMeans, ClassSums, FinchClusters, KMeansClusters
    from vpdr.registry import Registry, load_plugin
    from vpdr.regulariser import REGULARISERS, Dcr
    from vpdr.types import ChargeRequired, Prototypes, Release
    from vpdr.validation import InvalidInput, VpdrError

# Loaded when they are first used: whoever needs a mechanism on plain arrays loads no datasets and no plots, and
# `vpdr --help` loads no torch.
_LAZY = {
    "vpdr.api": ("attack", "audit", "compare", "load_config", "run", "run_experiment"),
    "vpdr.attacks": ("AttackConfig",),
    "vpdr.audits": ("AuditConfig", "AuditOptions"),
    "vpdr.client": ("Client", "evaluate_client", "predict"),
    "vpdr.config": ("RunConfig",),
    "vpdr.data": ("Dataset",),
    "vpdr.config.methods": ("METHODS",),
    "vpdr.encoder.backbone": ("Backbone",),
    "vpdr.encoder.zoo": ("BACKBONES", "load_backbone"),
    "vpdr.federation": ("Federation", "RunOptions", "Server", "build"),
    "vpdr.frameworks": ("FRAMEWORKS", "merge"),
    "vpdr.mechanisms": ("MECHANISMS", "Igpp", "NoPrivacy", "Rapp", "ReleaseProjection", "SelectionConfig", "Vpp"),
    "vpdr.mechanisms.base": ("ReleaseContext", "SeededNoise", "SystemNoise"),
    "vpdr.privacy": ("Adjacency", "Budget", "EncoderKind", "GuaranteeLevel", "Receipt"),
    "vpdr.privacy.ledger": ("BudgetExceeded", "Charge", "Ledger"),
    "vpdr.privacy.ledger_file": ("LedgerFile",),
    "vpdr.prototypes": ("SUMMARISERS", "ClassMeans", "ClassSums", "FinchClusters", "KMeansClusters"),
    "vpdr.registry": ("Registry", "load_plugin"),
    "vpdr.regulariser": ("REGULARISERS", "Dcr"),
    "vpdr.types": ("ChargeRequired", "Prototypes", "Release"),
    "vpdr.validation": ("InvalidInput", "VpdrError"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module 'vpdr' has no attribute {name!r}")


__all__ = [
    "BACKBONES",
    "FRAMEWORKS",
    "MECHANISMS",
    "METHODS",
    "REGULARISERS",
    "SUMMARISERS",
    "InvalidInput",
    "Registry",
    "VpdrError",
]
__all__ += ["Adjacency", "Budget", "BudgetExceeded", "EncoderKind", "GuaranteeLevel"]
__all__ += ["Charge", "ChargeRequired", "Ledger", "LedgerFile", "Receipt"]
__all__ += ["ClassMeans", "ClassSums", "Dcr", "FinchClusters", "KMeansClusters"]
__all__ += ["Igpp", "NoPrivacy", "Rapp", "ReleaseProjection", "SelectionConfig", "Vpp"]
__all__ += ["Prototypes", "Release", "ReleaseContext", "SeededNoise", "SystemNoise"]
__all__ += ["Backbone", "load_backbone"]
__all__ += ["Client", "Dataset", "Federation", "RunConfig", "RunOptions", "Server", "build", "evaluate_client"]
__all__ += ["AttackConfig", "AuditConfig", "AuditOptions", "attack", "audit"]
__all__ += ["merge", "predict"]
__all__ += ["load_plugin"]
__all__ += ["compare", "load_config", "run", "run_experiment"]
