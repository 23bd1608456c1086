"""Data that several kinds of tests share."""

import torch

from vpdr import Budget, Ledger, Release, SelectionConfig, Vpp
from vpdr.rng import Streams

torch.set_num_threads(1)  # the tensors here are small: threads would only wait for each other

BUDGET, ROUNDS, DIM, CLASSES = Budget(1.0, 1e-5), 20, 32, 4


def blobs(seed: int, samples: int = 120) -> tuple[torch.Tensor, torch.Tensor]:
    """Four well separated classes in 32 dimensions."""
    streams = Streams(seed)
    centres = 3 * torch.randn(CLASSES, DIM, generator=Streams(0).generator("centres"))
    labels = torch.arange(samples) % CLASSES
    return centres[labels] + torch.randn(samples, DIM, generator=streams.generator("spread")), labels


def vpp(selection: str = "laplace", accountant: str = "exact", **settings: object) -> Vpp:
    return Vpp.calibrated(
        BUDGET,
        ROUNDS,
        clip_norm=5.0,
        dim=DIM,
        selection=SelectionConfig(selection=selection),
        accountant=accountant,
        **settings,
    )


def opened(release: Release) -> Release:
    """The release, charged to a ledger without a budget."""
    release.charge_to(Ledger(client="test", budget=None, adjacency=release.receipt.terms.adjacency), round=1)
    return release
