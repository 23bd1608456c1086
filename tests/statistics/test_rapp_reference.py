"""Errors of rapp beside those of the study that proposed it, on the nearest features that can be built.

The study fitted Gaussians to Lite0 features of digits in four domains, reduced to 384 dimensions and
projected to 512. Here the digits are those of the embedded benchmark.
"""

import math
import time

import pytest
import torch

from vpdr import Adjacency, Budget, ClassSums, Igpp, Occasion, SeededNoise
from vpdr.data import load_quickstart
from vpdr.encoder import cached_pooled, load_backbone
from vpdr.frameworks import FedProto, Now
from vpdr.frameworks.denoise import cleaned
from vpdr.frameworks.pool import pool
from vpdr.mechanisms import Geometry, Rapp
from vpdr.rng import Streams

pytestmark = pytest.mark.statistics
HIDDEN, DIM, CLASSES = 384, 512, 10
SAME, ANY = Adjacency.REPLACE_SAME_LABEL, Adjacency.REPLACE_ONE
STUDY = {  # samples of a class, ε -> relative error for either relation (d = 512, T = 20, four clients)
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
STUDY_WITHOUT_METRIC = {  # its ablation, labels kept
    (50, 1.0): 4.59,
    (200, 1.0): 1.14,
    (1000, 1.0): 0.095,
    (50, 8.0): 0.657,
    (200, 8.0): 0.061,
}
TOLERANCE = 1.25


@pytest.fixture(scope="module")
def fits():
    """Class means and pooled covariance of each domain in the hidden space, and the frozen projection."""
    benchmark, backbone = load_quickstart(800), load_backbone("efficientnet_lite0", pixels=96)
    vectors = [cached_pooled(backbone, domain.images).double() for domain in benchmark.pictures]
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
    rng, bound = Streams(0).draw("projection"), 1 / math.sqrt(HIDDEN)
    weight = (2 * torch.rand(DIM, HIDDEN, generator=rng, dtype=torch.float64) - 1) * bound
    return domains, weight, (2 * torch.rand(DIM, generator=rng, dtype=torch.float64) - 1) * bound


def drawn(fits, n: int, seed: int) -> list[torch.Tensor]:
    """Samples of four clients, [classes · n, d]."""
    domains, weight, bias = fits
    clients = []
    for number, (means, axes) in enumerate(domains):
        rng = Streams(seed).draw("samples", client=number)
        spread = torch.randn(CLASSES, n, HIDDEN, generator=rng, dtype=torch.float64) @ axes.T
        clients.append(((means[:, None] + spread) @ weight.T + bias).flatten(0, 1))
    return clients


def geometry_of(fits, metric: str) -> Geometry:
    _, weight, bias = fits
    return Geometry.plain(DIM) if metric == "plain" else Geometry.of_projection(weight, bias)


def mean_error(fits, cell: tuple[int, float], adjacency: Adjacency, metric: str) -> float:
    n, epsilon = cell
    found = [relative_error(fits, n, Budget(epsilon, 1e-5), (adjacency, metric), seed) for seed in range(2)]
    return sum(found) / len(found)


def relative_error(fits, n: int, budget: Budget, rule: tuple[Adjacency, str], seed: int) -> float:
    """Five rounds of five stages through FedProto's server; what it reads from the uploads of all."""
    clients, (adjacency, metric) = drawn(fits, n, seed), rule
    geometry, labels = geometry_of(fits, metric), torch.arange(CLASSES).repeat_interleave(n)
    norm = torch.cat([(x - geometry.offset).norm(dim=1) for x in clients]).median()
    mechanism = Rapp.calibrated(
        budget,
        5,
        clip_norm=float(norm) / geometry.shrinks,
        classes=CLASSES,
        geometry=geometry,
        adjacency=adjacency,
    )
    heard, memories, streams = None, [{} for _ in clients], Streams(seed)
    for t in range(1, 6):
        uploads = []
        for i, x in enumerate(clients):
            noise = SeededNoise(streams.draw("release", client=i, t=t))
            at = Occasion(encoder="public", noise=noise, heard=heard, memory=memories[i])
            made = mechanism.release(x, labels, at)
            memories[i] = made.memory
            uploads.append(made.prototypes)
        now = Now(t=t, classes=CLASSES, dim=DIM, streams=streams, weights=torch.ones(len(clients), CLASSES))
        heard, _ = FedProto().generate(uploads, {}, now)
    target = torch.stack([x.reshape(CLASSES, n, DIM).mean(1) for x in clients])
    told = cleaned(pool(uploads, now), CLASSES).each.vectors.reshape(target.shape)
    between = (target - target.mean(1, keepdim=True)).square().sum(2).mean()
    return float((told - target).square().sum(2).mean() / between)


@pytest.mark.parametrize("adjacency", [SAME, ANY])
@pytest.mark.parametrize("cell", STUDY)
def test_errors_are_those_of_the_study(fits, cell, adjacency) -> None:
    """Every cell of its table, with the elliptical metric that it used.

    Measured over the study, for either relation: 0.53 to 0.97 with 20 samples of a class, where noise is all
    there is and more of it is shrunk away, 0.67 to 1.03 with 50, 0.95 to 1.06 with 200, and 0.99 to 1.05 with
    1000 (0.77 in the last cell, which the study gives to one digit).
    """
    assert mean_error(fits, cell, adjacency, "projection") < TOLERANCE * STUDY[cell][adjacency is ANY]


@pytest.mark.parametrize("adjacency", [SAME, ANY])
@pytest.mark.parametrize("cell", STUDY_WITHOUT_METRIC)
def test_errors_without_the_metric_are_those_of_the_study_without_it(fits, cell, adjacency) -> None:
    """`plain` is what the preset `strict` uses. It must lose to the table above wherever noise is small.

    Measured over the study's ablation: 0.76 (50 samples, ε = 1) to 1.05. Over the same cells of the table
    above, which are elliptical: 0.91, 1.30, 1.72, 1.45, 1.76; over all of it 0.59 to 1.77, more than the
    tolerance of 1.25 from 50 samples at ε = 4 on. That is what the metric is worth and no defect of `plain`.
    """
    assert mean_error(fits, cell, adjacency, "plain") < TOLERANCE * STUDY_WITHOUT_METRIC[cell]


@pytest.mark.parametrize("metric", ["plain", "projection"])
def test_a_stage_costs_less_than_two_releases_of_igpp(metric) -> None:
    rng = Streams(0).draw("x")
    weight = torch.randn(DIM, 1280, generator=rng)
    geometry = Geometry.plain(DIM) if metric == "plain" else Geometry.of_projection(weight)
    vectors, labels = torch.randn(10_000, DIM, generator=rng), torch.arange(10_000) % CLASSES
    igpp = Igpp.calibrated(Budget(1.0, 1e-5), 5, clip_norm=5.0)
    rapp = Rapp.calibrated(Budget(1.0, 1e-5), 5, clip_norm=5.0, classes=CLASSES, geometry=geometry)
    memory = rapp.release(vectors, labels).memory
    sums = ClassSums(classes=CLASSES)

    def fastest(mechanism, at: Occasion) -> float:
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            mechanism.release(vectors, labels, at)
            times.append(time.perf_counter() - begin)
        return min(times)

    assert fastest(rapp, Occasion(memory=memory)) < 2 * fastest(igpp, Occasion(summarise=sums))
