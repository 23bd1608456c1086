"""k-means against scikit-learn."""

import numpy as np
from sklearn.cluster import KMeans

from tests.conftest import blobs
from vpdr import KMeansClusters


def test_kmeans_centroids_are_those_of_scikit_learn() -> None:
    vectors, labels = blobs(1)
    ours = KMeansClusters(rate=0.1)(vectors.double(), labels)
    for label in range(4):
        own = vectors[labels == label].double().numpy()
        oracle = KMeans(n_clusters=3, n_init=1, random_state=0).fit(own)
        mine = ours.vectors[ours.labels == label].numpy()
        np.testing.assert_allclose(np.sort(mine, axis=0), np.sort(oracle.cluster_centers_, axis=0), atol=1e-6)
        assert int(ours.sizes[ours.labels == label].sum()) == len(own)
