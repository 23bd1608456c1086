"""Mechanisms, contexts and data that several tests of RAPP share."""

import torch

from tests.conftest import BUDGET, CLASSES, DIM
from vpdr import Adjacency, ReleaseContext, SeededNoise
from vpdr.mechanisms import Rapp, ReleaseProjection
from vpdr.mechanisms.rapp import StageParams, effective_adjacency
from vpdr.rng import Streams
from vpdr.types import Prototypes


def make_rapp(rounds: int = 5, epsilon: float = 1.0, **settings: object) -> Rapp:
    options = {"clip_norm": 5.0, "classes": CLASSES, "projection": ReleaseProjection.identity(DIM), **settings}
    return Rapp.calibrated(type(BUDGET)(epsilon, BUDGET.delta), rounds, **options)


def release_context(round: int = 1, seed: int = 7, **settings: object) -> ReleaseContext:
    noise = SeededNoise(Streams(seed).generator("release", round=round))
    return ReleaseContext(client="amazon", round=round, encoder="public", noise=noise, **settings)


def stage_params(
    seed: int, adjacency: Adjacency, per_class: int, radius: float, far: float, dim: int = DIM
) -> StageParams:
    """The parameters of a stage with centres of a malicious server."""
    centres = far * torch.randn(
        CLASSES * per_class, dim, generator=Streams(seed).generator("centres"), dtype=torch.float64
    )
    return StageParams(
        centres=centres,
        radius=radius,
        per_class=per_class,
        adjacency=effective_adjacency(adjacency, per_class),
        num_samples=120,
    )


def anchors(seed: int, scale: float = 1.0) -> Prototypes:
    drawn = torch.randn(CLASSES, DIM, generator=Streams(seed).generator("anchors"))
    return Prototypes(scale * drawn, torch.arange(CLASSES))


def grid(seed: int, shape: tuple[int, ...], scales: tuple[float, float, float, float]) -> torch.Tensor:
    """Clean prototypes with known components: grand, class, client, rest."""
    m, c, d = shape
    streams = Streams(seed)

    def draw(name: str, *size: int) -> torch.Tensor:
        return torch.randn(*size, d, generator=streams.generator(name), dtype=torch.float64)

    grand, by_class, by_client, rest = scales
    return (
        grand**0.5 * draw("grand", 1, 1)
        + by_class**0.5 * draw("class", 1, c)
        + by_client**0.5 * draw("client", m, 1)
        + rest**0.5 * draw("rest", m, c)
    )


def noisy(clean: torch.Tensor, variances: torch.Tensor, seed: int) -> torch.Tensor:
    drawn = torch.randn(clean.shape, generator=Streams(seed).generator("noise"), dtype=torch.float64)
    return clean + variances.sqrt()[..., None] * drawn
