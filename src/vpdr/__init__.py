"""Private prototypes for personalised federated learning."""

from vpdr.mechanisms import Focus, Identity, Igpp, Occasion, SeededNoise, SystemNoise, Vpp
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
    "Identity",
    "Igpp",
    "KMeansClusters",
    "Ledger",
    "LedgerFile",
    "Occasion",
    "Prototypes",
    "Release",
    "SeededNoise",
    "SystemNoise",
    "Vpp",
]
