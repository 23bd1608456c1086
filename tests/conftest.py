"""Data that several kinds of tests share."""

import pytest
import torch

from vpdr import Budget, Focus, Identity, Igpp, Vpp
from vpdr.mechanisms import SELECTIONS, Geometry, Rapp
from vpdr.rng import Streams

torch.set_num_threads(1)  # the tensors here are small: threads would only wait for each other

BUDGET, ROUNDS, DIM, CLASSES = Budget(1.0, 1e-5), 20, 32, 4


def blobs(seed: int, samples: int = 120) -> tuple[torch.Tensor, torch.Tensor]:
    """Four well separated classes in 32 dimensions."""
    streams = Streams(seed)
    centres = 3 * torch.randn(CLASSES, DIM, generator=Streams(0).draw("centres"))
    labels = torch.arange(samples) % CLASSES
    return centres[labels] + torch.randn(samples, DIM, generator=streams.draw("spread")), labels


def vpp(selection: str = "laplace", accountant: str = "exact", **settings: object) -> Vpp:
    return Vpp.calibrated(
        BUDGET,
        ROUNDS,
        clip_norm=5.0,
        dim=DIM,
        focus=Focus(selection=selection),
        accountant=accountant,
        **settings,
    )


def rapp(**settings: object) -> Rapp:
    given = {"clip_norm": 5.0, "classes": CLASSES, "geometry": Geometry.plain(DIM), **settings}
    return Rapp.calibrated(BUDGET, given.pop("rounds", ROUNDS), **given)


def elliptical(dim: int = DIM, reached: int = DIM, seed: int = 0, kept: int | None = None) -> Geometry:
    """The metric of a projection whose singular values are far apart."""
    within = Geometry.random(dim, kept or dim, Streams(seed).draw("space"))
    rng = Streams(seed).draw("projection")
    weight = torch.randn(dim, reached, generator=rng) * torch.linspace(0.1, 3, reached)
    return Geometry.of_projection(weight, torch.randn(dim, generator=rng), within=within)


MECHANISMS = {
    "none": Identity(),
    "igpp": Igpp.calibrated(BUDGET, ROUNDS, clip_norm=5.0),
    "igpp-accumulated": Igpp.calibrated(BUDGET, ROUNDS, clip_norm=5.0, accumulate=True),
    "rapp": rapp(),
    "rapp-elliptical": rapp(geometry=elliptical()),
    **{f"vpp-{selection}": vpp(selection) for selection in SELECTIONS},
}
PRIVATE = {name: made for name, made in MECHANISMS.items() if name not in {"none", "vpp-oracle"}}


@pytest.fixture(params=MECHANISMS, ids=str)
def mechanism(request: pytest.FixtureRequest):
    """Every mechanism in every mode."""
    return MECHANISMS[request.param]


@pytest.fixture(params=PRIVATE, ids=str)
def private_mechanism(request: pytest.FixtureRequest):
    """Every mechanism that claims a guarantee."""
    return PRIVATE[request.param]
