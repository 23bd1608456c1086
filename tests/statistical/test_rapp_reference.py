"""Errors of rapp beside those of the study that proposed it, on the nearest features that can be built.

The study fitted Gaussians to Lite0 features of digits in four domains, reduced to 384 dimensions and
projected to 512. Here the digits are those of the embedded benchmark.
"""

import math
import time

import pytest
import torch

from tests.conftest import opened
from vpdr import Adjacency, Budget, ClassSums, Igpp, ReleaseContext, SeededNoise
from vpdr.data.quickstart import load_quickstart
from vpdr.encoder.backbone import cached_pooled_features
from vpdr.encoder.zoo import load_backbone
from vpdr.frameworks import FedProto, ServerContext
from vpdr.frameworks.aggregation import denoise_uploads, pool_uploads
from vpdr.mechanisms import Rapp, ReleaseProjection
from vpdr.rng import Streams

pytestmark = pytest.mark.statistics
HIDDEN, DIM, CLASSES = 384, 512, 10
SAME, ANY = Adjacency.REPLACE_SAME_LABEL, Adjacency.REPLACE_ONE
# samples of a class, ε -> relative error for either relation (d = 512, T = 20, four clients); the study used
# noise with an elliptical metric, which this package does not have
STUDY_ELLIPTICAL = {
    (20, 0.5): (10.0, 8.76),
    (20, 1.0): (7.15, 7.14),
    (20, 2.0): (4.67, 4.63),
    (20, 4.0): (2.79, 2.73),
    (20, 8.0): (1.39, 1.40),
    (50, 0.5): (6.14, 6.22),
    (50, 1.0): (3.82, 3.79),
    (50, 2.0): (2.02, 1.99),
    (50, 4.0): (0.99, 0.98),
    (50, 8.0): (0.45, 0.45),
    (200, 0.5): (1.75, 1.76),
    (200, 1.0): (0.85, 0.84),
    (200, 2.0): (0.34, 0.34),
    (200, 4.0): (0.12, 0.12),
    (200, 8.0): (0.036, 0.036),
    (1000, 0.5): (0.19, 0.19),
    (1000, 1.0): (0.057, 0.058),
    (1000, 2.0): (0.017, 0.017),
    (1000, 4.0): (0.005, 0.005),
    (1000, 8.0): (0.002, 0.002),
}
STUDY_ISOTROPIC = {  # its ablation without that metric, labels kept
    (50, 1.0): 4.59,
    (200, 1.0): 1.14,
    (1000, 1.0): 0.095,
    (50, 8.0): 0.657,
    (200, 8.0): 0.061,
}
TOLERANCE = 1.25
ELLIPTICAL_TOLERANCE = 2.0  # the metric is worth up to a factor of 1.77 where noise is small


@pytest.fixture(scope="module")
def fits():
    """Class means and pooled covariance of each domain in the hidden space, and the frozen projection."""
    benchmark, backbone = load_quickstart(800), load_backbone("efficientnet_lite0", pixels=96)
    vectors = [cached_pooled_features(backbone, domain.images).double() for domain in benchmark.image_domains]
    _, _, right = torch.linalg.svd(torch.cat(vectors), full_matrices=False)
    hidden = [part @ right[:HIDDEN].T for part in vectors]
    scale = math.sqrt(HIDDEN / torch.cat(hidden).square().sum(1).mean())
    domains = []
    for part, domain in zip(hidden, benchmark.domains, strict=True):
        labels = torch.from_numpy(domain.labels)
        means = torch.stack([scale * part[labels == c].mean(0) for c in range(CLASSES)])
        rest = scale * part - means[labels]
        values, axes = torch.linalg.eigh(rest.T @ rest / (len(rest) - CLASSES))
        domains.append((means, axes * values.clamp(min=0).sqrt()))
    rng, bound = Streams(0).generator("projection"), 1 / math.sqrt(HIDDEN)
    weight = (2 * torch.rand(DIM, HIDDEN, generator=rng, dtype=torch.float64) - 1) * bound
    return domains, weight, (2 * torch.rand(DIM, generator=rng, dtype=torch.float64) - 1) * bound


def drawn(fits, n: int, seed: int) -> list[torch.Tensor]:
    """Samples of four clients, [classes · n, d]."""
    domains, weight, bias = fits
    clients = []
    for number, (means, axes) in enumerate(domains):
        rng = Streams(seed).generator("samples", client=number)
        spread = torch.randn(CLASSES, n, HIDDEN, generator=rng, dtype=torch.float64) @ axes.T
        clients.append(((means[:, None] + spread) @ weight.T + bias).flatten(0, 1))
    return clients


def mean_error(fits, cell: tuple[int, float], adjacency: Adjacency) -> float:
    n, epsilon = cell
    errors = [relative_error(fits, n, Budget(epsilon, 1e-5), adjacency, seed) for seed in range(2)]
    return sum(errors) / len(errors)


def relative_error(fits, n: int, budget: Budget, adjacency: Adjacency, seed: int) -> float:
    """Five rounds of five stages through FedProto's server; the error of the server's denoised prototypes."""
    clients, labels = drawn(fits, n, seed), torch.arange(CLASSES).repeat_interleave(n)
    mechanism = Rapp.calibrated(
        budget,
        5,
        clip_norm=float(torch.cat([x.norm(dim=1) for x in clients]).median()),
        classes=CLASSES,
        projection=ReleaseProjection.identity(DIM),
        adjacency=adjacency,
    )
    broadcast, states, streams = None, [{} for _ in clients], Streams(seed)
    for t in range(1, 6):
        uploads = []
        for i, x in enumerate(clients):
            noise = SeededNoise(streams.generator("release", client=i, round=t))
            at = ReleaseContext(encoder="public", noise=noise, last_broadcast=broadcast, state=states[i])
            release = opened(mechanism.release(x, labels, at))
            states[i] = release.state
            uploads.append(release.prototypes)
        now = ServerContext(
            round=t, classes=CLASSES, dim=DIM, streams=streams, weights=torch.ones(len(clients), CLASSES)
        )
        broadcast, _ = FedProto().aggregate(uploads, {}, now)
    target = torch.stack([x.reshape(CLASSES, n, DIM).mean(1) for x in clients])
    denoised = denoise_uploads(pool_uploads(uploads, now), CLASSES).prototypes.vectors.reshape(target.shape)
    between = (target - target.mean(1, keepdim=True)).square().sum(2).mean()
    return float((denoised - target).square().sum(2).mean() / between)


@pytest.mark.parametrize("adjacency", [SAME, ANY])
@pytest.mark.parametrize("cell", STUDY_ELLIPTICAL)
def test_errors_are_near_those_of_the_elliptical_study(fits, cell, adjacency) -> None:
    """Measured over the study, for either relation: 0.59 to 1.77, more than 1.25 from 50 samples at ε = 4 on.

    That is what the metric is worth, and no defect of isotropic noise.
    """
    reference = STUDY_ELLIPTICAL[cell][adjacency is ANY]
    assert mean_error(fits, cell, adjacency) < ELLIPTICAL_TOLERANCE * reference


@pytest.mark.parametrize("adjacency", [SAME, ANY])
@pytest.mark.parametrize("cell", STUDY_ISOTROPIC)
def test_errors_are_those_of_the_isotropic_study(fits, cell, adjacency) -> None:
    """Measured over the study's ablation: 0.76 (50 samples, ε = 1) to 1.05."""
    assert mean_error(fits, cell, adjacency) < TOLERANCE * STUDY_ISOTROPIC[cell]


@pytest.mark.parametrize("release_dim", [DIM, 64])
def test_a_stage_costs_less_than_two_releases_of_igpp(release_dim) -> None:
    rng = Streams(0).generator("x")
    projection = ReleaseProjection.random(DIM, release_dim, rng)
    vectors, labels = torch.randn(10_000, DIM, generator=rng), torch.arange(10_000) % CLASSES
    igpp = Igpp.calibrated(Budget(1.0, 1e-5), 5, clip_norm=5.0)
    rapp = Rapp.calibrated(Budget(1.0, 1e-5), 5, clip_norm=5.0, classes=CLASSES, projection=projection)
    state = opened(rapp.release(vectors, labels)).state
    sums = ClassSums(classes=CLASSES)

    def fastest(mechanism, at: ReleaseContext) -> float:
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            mechanism.release(vectors, labels, at)
            times.append(time.perf_counter() - begin)
        return min(times)

    assert fastest(rapp, ReleaseContext(state=state)) < 2 * fastest(igpp, ReleaseContext(summariser=sums))
