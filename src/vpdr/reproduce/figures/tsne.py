"""Test features in two dimensions, after the first and the last round."""

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.report.figures import canvas, drawn
from vpdr.reproduce.figures.replay import Album
from vpdr.reproduce.labels import heading
from vpdr.rng import Streams

if TYPE_CHECKING:
    from vpdr.report.figures import Figure

MOST, PERPLEXITY = 1000, 30.0  # more points than that only make the picture slower


def maps(album: Album, seed: int) -> list[dict[str, Any]]:
    """For each round and client: two coordinates and a label for each test sample."""
    found = []
    for t, clients in album.items():
        for name, (vectors, labels) in clients.items():
            rng = Streams(seed).draw("tsne", client=name)  # the same samples in every round
            rows = torch.randperm(len(labels), generator=rng)[:MOST]
            flat = flattened(vectors[rows], seed)
            found.append(
                {"round": t, "client": name, "points": flat.tolist(), "labels": labels[rows].tolist()}
            )
    return found


def flattened(vectors: Float[Tensor, "n d"], seed: int) -> np.ndarray[Any, Any]:
    """t-SNE from a PCA start, so that the seed decides little."""
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    made = TSNE(init="pca", perplexity=perplexity, random_state=seed)
    found: np.ndarray[Any, Any] = made.fit_transform(vectors.double().numpy())
    return found


@drawn
def tsne(summary: Mapping[str, Any], found: list[dict[str, Any]], method: str) -> "Figure":
    """A map for each client (across) and round (down), coloured by class, titled with the accuracy."""
    rounds = list(dict.fromkeys(each["round"] for each in found))
    clients = list(dict.fromkeys(each["client"] for each in found))
    metrics = next(line["metrics"] for line in summary["lines"] if line["method"] == method)
    figure, grid = canvas(len(clients), len(rounds), (2.7 * len(clients), 2.8 * len(rounds)))
    for each in found:
        axes = grid[rounds.index(each["round"]), clients.index(each["client"])]
        points = np.array(each["points"])
        axes.scatter(points[:, 0], points[:, 1], c=each["labels"], cmap="tab10", s=5, linewidths=0)
        right = metrics[f"T={each['round']} {each['client']}"]["mean"]
        axes.set(title=f"{each['client']}, T = {each['round']}: {right:.2f} %", xticks=[], yticks=[])
    figure.suptitle(textwrap.fill(heading(summary), 30 * len(clients)), fontsize=10)
    return figure
