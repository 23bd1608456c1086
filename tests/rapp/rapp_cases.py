"""Stages, viewpoints and noise sources that several tests need."""

import torch

from tests.conftest import BUDGET, CLASSES, DIM
from vpdr import Adjacency, Occasion, SeededNoise
from vpdr.mechanisms import Geometry, Rapp
from vpdr.mechanisms.rapp.look import Viewpoint, counting_adjacency
from vpdr.rng import Streams
from vpdr.types import Prototypes


def made(rounds: int = 5, epsilon: float = 1.0, **settings: object) -> Rapp:
    given = {"clip_norm": 5.0, "classes": CLASSES, "geometry": Geometry.plain(DIM), **settings}
    return Rapp.calibrated(type(BUDGET)(epsilon, BUDGET.delta), rounds, **given)


def occasion(t: int = 1, seed: int = 7, **settings: object) -> Occasion:
    noise = SeededNoise(Streams(seed).draw("release", t=t))
    return Occasion(client="amazon", round=t, encoder="public", noise=noise, **settings)


def view(
    seed: int, adjacency: Adjacency, per_class: int, radius: float, far: float, dim: int = DIM
) -> Viewpoint:
    """Centres as a server would choose them that wants to do harm."""
    centres = far * torch.randn(
        CLASSES * per_class, dim, generator=Streams(seed).draw("centres"), dtype=torch.float64
    )
    return Viewpoint(
        centres=centres,
        radius=radius,
        per_class=per_class,
        adjacency=counting_adjacency(adjacency, per_class),
        total=120,
    )


def anchors(seed: int, scale: float = 1.0) -> Prototypes:
    drawn = torch.randn(CLASSES, DIM, generator=Streams(seed).draw("anchors"))
    return Prototypes(scale * drawn, torch.arange(CLASSES))


def grid(seed: int, shape: tuple[int, ...], scales: tuple[float, float, float, float]) -> torch.Tensor:
    """Clean prototypes with known components: grand, class, client, rest."""
    m, c, d = shape
    streams = Streams(seed)

    def draw(name: str, *size: int) -> torch.Tensor:
        return torch.randn(*size, d, generator=streams.draw(name), dtype=torch.float64)

    grand, by_class, by_client, rest = scales
    return (
        grand**0.5 * draw("grand", 1, 1)
        + by_class**0.5 * draw("class", 1, c)
        + by_client**0.5 * draw("client", m, 1)
        + rest**0.5 * draw("rest", m, c)
    )


def noisy(clean: torch.Tensor, variances: torch.Tensor, seed: int) -> torch.Tensor:
    drawn = torch.randn(clean.shape, generator=Streams(seed).draw("noise"), dtype=torch.float64)
    return clean + variances.sqrt()[..., None] * drawn
