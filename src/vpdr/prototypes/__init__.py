"""Calculate (Eq. 2): from clipped features to prototypes, each rule stating its own sensitivity."""

from vpdr.prototypes.base import NoSensitivity, Summariser
from vpdr.prototypes.clusters import FinchClusters, KMeansClusters
from vpdr.prototypes.means import ClassMeans
from vpdr.prototypes.sums import ClassSums

SUMMARISERS: dict[str, type[Summariser]] = {
    "means": ClassMeans,
    "sums": ClassSums,
    "kmeans": KMeansClusters,
    "finch": FinchClusters,
}

__all__ = [
    "SUMMARISERS",
    "ClassMeans",
    "ClassSums",
    "FinchClusters",
    "KMeansClusters",
    "NoSensitivity",
    "Summariser",
]
