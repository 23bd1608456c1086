"""The noise has the claimed scale, and a scale wrong by 5 % would have been noticed."""

import itertools

import numpy as np
import pytest
import scipy.stats
import torch

from tests.conftest import CLASSES, DIM, blobs, opened
from vpdr import Adjacency, ClassSums, Igpp, ReleaseContext, SelectionConfig, SystemNoise, Vpp
from vpdr.mechanisms import NoiseAllocation, SeededNoise, anova_scores
from vpdr.mechanisms.base import clip
from vpdr.mechanisms.vpp import top_k_mask
from vpdr.privacy import Budget
from vpdr.prototypes import ClassMeans
from vpdr.rng import Streams
from vpdr.types import Features

BUDGET, RADIUS, REPEATS = Budget(1.0, 1e-5), 5.0, 400
STRICT = 1e-7  # accept above, reject below: once in ten million runs chance decides


def scale_p_value(standardised: np.ndarray) -> float:
    """Two-sided chi-square test of unit variance around a known mean."""
    energy, count = float((standardised**2).sum()), standardised.size
    return 2 * min(scipy.stats.chi2.cdf(energy, count), scipy.stats.chi2.sf(energy, count))


def accepts(standardised: np.ndarray) -> None:
    """The right shape and scale pass; a scale of 5 % more or less does not."""
    assert scipy.stats.kstest(standardised, "norm").pvalue > STRICT
    assert scale_p_value(standardised) > STRICT
    for wrong in (1.05, 0.95):
        assert scale_p_value(standardised * wrong) < STRICT


def releases(mechanism, rule=None, source=None) -> np.ndarray:
    """Repeated releases of one client, [repeats, prototypes, dimensions]."""
    out = []
    for t in range(REPEATS):
        noise = source or SeededNoise(Streams(0).generator("release", round=t))
        extra = {"summariser": rule} if rule else {}
        release = opened(mechanism.release(*blobs(1), ReleaseContext(noise=noise, round=t, **extra)))
        out.append(release.prototypes.vectors)
    return torch.stack(out).double().numpy()


IGPP = Igpp.calibrated(BUDGET, 20, clip_norm=RADIUS)
SIZE = 30  # samples of each class in blobs


@pytest.mark.parametrize("source", [None, SystemNoise()], ids=["seeded", "system"])
def test_igpp(source) -> None:
    vectors, labels = blobs(1)
    clean = ClassMeans()(clip(vectors.double(), RADIUS), labels).vectors.numpy()
    std = IGPP.noise_multiplier * 2 * RADIUS / SIZE
    accepts(((releases(IGPP, source=source) - clean) / std).ravel())


def test_sums_with_hidden_counts() -> None:
    quiet = Igpp(clip_norm=RADIUS, noise_multiplier=0.5, adjacency=Adjacency.REPLACE_ONE)

    class Raw(ClassSums):
        """Hands the noisy sums out as they are, with the noisy count in front."""

        def postprocess(self, vectors, sizes):
            return torch.cat([sizes[:, None], vectors[:, 1:]], dim=1)

    rule = Raw(classes=CLASSES)
    drawn = releases(quiet, rule)
    summary = rule(clip(blobs(1)[0].double(), RADIUS), blobs(1)[1])
    accepts(((drawn[:, :, 1:] - summary.vectors[:, 1:].numpy()) / (0.5 * 2 * RADIUS)).ravel())
    more = np.concatenate([releases(quiet, rule, SeededNoise(Streams(k).generator("more")))[:, :, 0] for k in range(5)])
    accepts(((more - SIZE) / (0.5 * 2)).ravel())


@pytest.mark.parametrize("keep", [0.2, 0.5])
def test_vpp_in_both_groups(keep) -> None:
    mechanism = Vpp.calibrated(
        BUDGET, 20, clip_norm=RADIUS, dim=DIM, selection=SelectionConfig(selection="oracle", keep=keep)
    )
    vectors, labels = blobs(1)
    groups = NoiseAllocation.from_fraction(DIM, keep)
    focus = top_k_mask(anova_scores(Features(vectors.double(), labels)), groups.num_selected)
    clipped = vectors.double()
    for mask, radius in zip((focus, ~focus), groups.radii, strict=True):
        clipped[:, mask] = clip(clipped[:, mask], RADIUS * radius)
    clean = ClassMeans()(clipped, labels).vectors.numpy()
    residual = (releases(mechanism) - clean) / (mechanism.noise_multiplier * 2 * RADIUS / SIZE)
    for mask, factor in zip((focus, ~focus), groups.group_scales, strict=True):
        accepts(residual[:, :, mask.numpy()].ravel() / factor)


def test_laplace_noise() -> None:
    for source in (SystemNoise(), SeededNoise(Streams(0).generator("laplace"))):
        drawn = source.discrete_laplace(torch.full((40_000,), 2**40)).numpy() / 2**40
        assert scipy.stats.kstest(drawn, "laplace").pvalue > STRICT
        length = np.abs(drawn).sum()  # a sum of exponentials
        chances = [scipy.stats.gamma.cdf(length * wrong, drawn.size) for wrong in (1.0, 1.05, 0.95)]
        outside = [min(chance, 1 - chance) for chance in chances]
        assert outside[0] > STRICT > max(outside[1:])


@pytest.mark.parametrize("name", ["igpp", "vpp"])
def test_rounds_classes_clients_and_groups_are_uncorrelated(name) -> None:
    mechanism = {
        "igpp": IGPP,
        "vpp": Vpp.calibrated(BUDGET, 20, clip_norm=RADIUS, dim=DIM, selection=SelectionConfig(selection="oracle")),
    }[name]
    known = releases(mechanism)
    clean, spread = known.mean(axis=0), known.std(axis=0)
    streams = Streams(1)
    residuals = {}
    for client, t in itertools.product("ab", range(60)):
        noise = SeededNoise(streams.generator("release", client=client, round=t))
        drawn = opened(mechanism.release(*blobs(1), ReleaseContext(noise=noise))).prototypes.vectors.double().numpy()
        residuals[client, t] = (drawn - clean) / spread
    a = np.stack([residuals["a", t] for t in range(60)])
    b = np.stack([residuals["b", t] for t in range(60)])
    pairs = {
        "clients": (a, b),
        "rounds": (a[1:], a[:-1]),
        "classes": (a[:, 0], a[:, 1]),
        "groups": (a[:, :, : DIM // 2], a[:, :, DIM // 2 :]),
    }
    for what, (left, right) in pairs.items():
        assert scipy.stats.pearsonr(left.ravel(), right.ravel()).pvalue > STRICT, what


def test_two_unseeded_runs_share_nothing() -> None:
    first, second = (releases(IGPP, source=SystemNoise())[:3] for _ in range(2))
    assert not np.any(first == second)
