"""Private prototypes for personalised federated learning."""

from vpdr.mechanisms import Focus, Geometry, Identity, Igpp, Occasion, Rapp, SeededNoise, SystemNoise, Vpp
from vpdr.privacy import Adjacency, Budget, BudgetExceeded, EncoderKind, Ledger, LedgerFile
from vpdr.prototypes import ClassMeans, ClassSums, FinchClusters, KMeansClusters
from vpdr.types import Prototypes, Release

__all__ = [
    "Adjacency",
    "Budget",
    "BudgetExceeded",
    "ClassMeans",
    "ClassSums",
    "EncoderKind",
    "FinchClusters",
    "Focus",
    "Geometry",
    "Identity",
    "Igpp",
    "KMeansClusters",
    "Ledger",
    "LedgerFile",
    "Occasion",
    "Prototypes",
    "Rapp",
    "Release",
    "SeededNoise",
    "SystemNoise",
    "Vpp",
]
