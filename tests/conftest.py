"""Data that several kinds of tests share."""

import pytest
import torch

from vpdr import Budget, Igpp, NoPrivacy, SelectionConfig, Vpp
from vpdr.mechanisms import SELECTIONS, Rapp, ReleaseProjection
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


def rapp(**settings: object) -> Rapp:
    options = {"clip_norm": 5.0, "classes": CLASSES, "projection": ReleaseProjection.identity(DIM), **settings}
    return Rapp.calibrated(BUDGET, options.pop("rounds", ROUNDS), **options)


MECHANISMS = {
    "none": NoPrivacy(),
    "igpp": Igpp.calibrated(BUDGET, ROUNDS, clip_norm=5.0),
    "igpp-accumulated": Igpp.calibrated(BUDGET, ROUNDS, clip_norm=5.0, accumulate=True),
    "rapp": rapp(),
    "rapp-projected": rapp(projection=ReleaseProjection.random(DIM, DIM // 2, Streams(0).generator("space"))),
    **{f"vpp-{selection}": vpp(selection) for selection in SELECTIONS},
}
PRIVATE = {name: mechanism for name, mechanism in MECHANISMS.items() if name not in {"none", "vpp-oracle"}}


@pytest.fixture(params=MECHANISMS, ids=str)
def mechanism(request: pytest.FixtureRequest):
    """Every mechanism in every mode."""
    return MECHANISMS[request.param]


@pytest.fixture(params=PRIVATE, ids=str)
def private_mechanism(request: pytest.FixtureRequest):
    """Every mechanism that claims a guarantee."""
    return PRIVATE[request.param]
