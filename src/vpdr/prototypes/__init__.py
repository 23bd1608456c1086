"""Summarisers (Eq. 2): from clipped features to prototypes, each with its own sensitivity."""

from vpdr.prototypes.summarisers import ClassMeans, ClassSums, FinchClusters, KMeansClusters, NoSensitivity, Summariser
from vpdr.registry import Registry

SUMMARISERS: Registry[type[Summariser]] = Registry(
    "summariser", {"means": ClassMeans, "sums": ClassSums, "kmeans": KMeansClusters, "finch": FinchClusters}
)
