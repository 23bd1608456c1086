"""Releases are exact: what neighbours can release, and how far one sample moves all that gets noise.

The second half follows every number of a release up to the point where noise is added. Shifts and scales are compared
as fractions: there is no rounding, neither in the mechanisms nor in the test.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.conftest import BUDGET, CLASSES, DIM, blobs, opened
from vpdr import Adjacency, ClassMeans, ClassSums, Igpp, Rapp, ReleaseContext, ReleaseProjection, SelectionConfig, Vpp
from vpdr.mechanisms import DpSgdConfig, base
from vpdr.mechanisms.dpsgd import sum_clipped_gradients
from vpdr.privacy import GaussianEvent
from vpdr.rng import Streams
from vpdr.types import Prototypes

SAME, ANY, ADD_REMOVE = Adjacency
Noisy = list[tuple[Tensor, Tensor]]  # whole numbers before noise, and the scales of their noise


class WatchedSums(ClassSums):
    """Class sums that remember the noisy sums in double precision."""

    noisy: list[Tensor] = []  # noqa: RUF012 - one list for a test

    def postprocess(self, vectors: Tensor, sizes: Tensor) -> Tensor:
        self.noisy.extend([vectors, sizes])
        return ClassSums.postprocess(self, vectors, sizes)


@pytest.mark.parametrize("adjacency", [SAME, ANY])
def test_all_that_gets_noise_lies_on_one_grid_for_all_neighbours(adjacency) -> None:
    """With noise in floating point some outputs near zero are reachable from one of two neighbours only."""
    rule, mechanism = WatchedSums(classes=CLASSES), Igpp(clip_norm=5.0, noise_multiplier=1.0, adjacency=adjacency)
    rule.noisy.clear()
    vectors, labels = blobs(1)
    other = vectors.clone()
    other[0] = -vectors[0]
    for each in (vectors, other):
        for _ in range(5):
            mechanism.release(each, labels, ReleaseContext(summariser=rule))
    for noisy in rule.noisy:
        steps = noisy * 2.0**26
        assert torch.equal(steps, steps.round())


def float_outputs(value: float, words: np.ndarray) -> np.ndarray:
    """What noise by inversion of 52 random bits makes of a number: the usual way in floating point."""
    uniform = torch.from_numpy((words + 0.5) * 2.0**-52)
    return (value + torch.special.ndtri(uniform)).float().numpy()


def test_floating_point_noise_tells_neighbours_apart_for_every_epsilon() -> None:
    """Every output in a window around zero, enumerated: most of those of 0 are out of reach of its neighbour 1."""
    window = 1e-12
    centre, reach = 2**51, 4000
    near_zero = np.arange(centre - reach, centre + reach, dtype=np.float64)
    start = round(float(torch.special.ndtr(torch.tensor(-1.0, dtype=torch.float64))) * 2**52)
    near_one = np.arange(start - 4 * reach, start + 4 * reach, dtype=np.float64)
    of_zero, of_one = float_outputs(0.0, near_zero), float_outputs(1.0, near_one)
    assert np.abs(of_one[[0, -1]]).min() > window  # the window is covered
    certain = np.setdiff1d(of_zero[np.abs(of_zero) < window], of_one)
    assert len(certain) > 1000
    # one output more than this has probability 0 under 1, and at least 2^-52 under 0: no ε is enough


@pytest.mark.parametrize(("shift", "scale"), [(1, 1), (3, 2), (4, 9), (40, 16)])
def test_the_rounded_gaussian_has_at_most_the_delta_of_the_gaussian(shift, scale) -> None:
    """The distributions of q + round(s Z) for neighbours that are `shift` apart, by their exact probabilities."""
    mpmath.mp.dps = 50
    reach = range(-30 * scale, 30 * scale + shift)
    below = [mpmath.ncdf(mpmath.mpf(1 - 2 * k) / (2 * scale)) for k in range(reach.stop + shift + 1)]  # P[Z < 1/2 - k]
    chances = [1 - 2 * below[1], *(a - b for a, b in itertools.pairwise(below[1:]))]  # of |k|
    pairs = [(chances[abs(k)], chances[abs(k - shift)]) for k in reach]
    assert all(p > 0 and q > 0 for p, q in pairs)
    mu = mpmath.mpf(shift) / scale
    for epsilon in (0, 0.1, 0.5, 1, 3, 8):
        delta = mpmath.fsum(max(p - mpmath.e**epsilon * q, 0) for p, q in pairs)
        exact = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.e**epsilon * mpmath.ncdf(-mu / 2 - epsilon / mu)
        assert delta <= exact * (1 + mpmath.mpf(10) ** -20)


@pytest.mark.parametrize(("count", "cap", "scale"), [(1, 2, 3), (2, 1, 2), (1, 3, 1)])
def test_the_selection_is_pure_by_enumeration(count, cap, scale) -> None:
    """All scores of three coordinates and all noise within a reach: no selection is e^ε times likelier."""
    q, reach = math.exp(-1 / scale), 14 * scale
    noise = np.arange(-reach, reach + 1)
    single = q ** np.abs(noise)
    single /= single.sum()
    joint = single[:, None, None] * single[None, :, None] * single[None, None, :]
    chances = []
    for scores in np.ndindex(cap + 1, cap + 1, cap + 1):
        values = np.stack(np.meshgrid(*(noise + score for score in scores), indexing="ij")).reshape(3, -1)
        order = np.argsort(-values, axis=0, kind="stable")[:count]
        masks = (2**order).sum(axis=0)  # the selected coordinates as bits of a number
        chances.append(np.bincount(masks, weights=joint.ravel(), minlength=8))
    table = np.array(chances)
    possible = table[:, table.max(axis=0) > 0]
    assert (possible.max(axis=0) / possible.min(axis=0)).max() <= math.exp(2 * count * cap / scale) * (1 + 1e-3)


@contextmanager
def no_noise() -> Iterator[Noisy]:
    """All whole numbers that get noise, with the scales of the noise, which is left out."""
    calls: Noisy = []

    def watched(whole: Tensor, noise: Tensor) -> Tensor:
        calls.append((whole, noise))
        return whole

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "add_noise", watched)
        yield calls


class Scales:
    """A noise source whose draws are the scales themselves; a selection gets none."""

    reproducible = True

    def rounded_gaussian(self, scales: Tensor) -> Tensor:
        return scales

    def discrete_laplace(self, scales: Tensor) -> Tensor:
        return torch.zeros_like(scales)


def squared_shift(first: Noisy, second: Noisy) -> Fraction:
    """Σ (shift / scale)² over all numbers that get noise, without rounding."""
    total = Fraction(0)
    for (one, noise), (two, other) in zip(first, second, strict=True):
        assert torch.equal(noise, other)  # the scale of the noise is public
        for a, b, scale in zip(*(each.flatten().tolist() for each in (one, two, noise)), strict=True):
            if a != b:
                total += Fraction(a - b, scale) ** 2
    return total


def charged(events) -> Fraction:
    return sum((1 / Fraction(event.noise_multiplier) ** 2 for event in events), Fraction(0))


def random_vpp(adjacency: Adjacency) -> Vpp:
    selection = SelectionConfig(selection="random", keep=0.3)  # ranks equal draws: the same coordinates every time
    return Vpp.calibrated(BUDGET, 20, clip_norm=5.0, dim=DIM, selection=selection, adjacency=adjacency)


def make_rapp(adjacency: Adjacency, per_class: int, release_dim: int = DIM) -> Rapp:
    projection = ReleaseProjection.random(DIM, release_dim, Streams(0).generator("space"))
    return Rapp.calibrated(
        BUDGET, 5, clip_norm=5.0, classes=CLASSES, projection=projection, per_class=per_class, adjacency=adjacency
    )


MECHANISMS: dict[str, Callable[[Adjacency], object]] = {
    "igpp": lambda adjacency: Igpp.calibrated(BUDGET, 20, clip_norm=5.0, adjacency=adjacency),
    "igpp, much noise": lambda adjacency: Igpp(clip_norm=1e-12, noise_multiplier=1e12, adjacency=adjacency),
    "igpp, little noise": lambda adjacency: Igpp(clip_norm=1e12, noise_multiplier=1e-6, adjacency=adjacency),
    "vpp": random_vpp,
    "rapp": lambda adjacency: make_rapp(adjacency, 1),
    "rapp, projected": lambda adjacency: make_rapp(adjacency, 1, release_dim=9),
    "rapp, two centres a class": lambda adjacency: make_rapp(adjacency, 2),
}
lengths = st.one_of(
    st.sampled_from([0.0, 5e-324, 1e-300, 1e-160, 1e-12, 5.0, 1e5, 1e153, 1e300, 1e308]), st.floats(0, 20)
)
hows = st.sampled_from(["anywhere", "axis", "opposite", "copy"])


def new_sample(seed: int, length: float, how: str, old: Tensor) -> Tensor:
    if how == "copy":
        return blobs(1)[0][seed % 120].double()
    if how == "axis":
        direction = torch.nn.functional.one_hot(torch.tensor(seed % DIM), DIM).double()
    elif how == "opposite":
        direction = -old / old.norm()
    else:
        drawn = torch.randn(DIM, generator=Streams(seed).generator("new"), dtype=torch.float64)
        direction = drawn / drawn.norm()
    return direction * length


@settings(max_examples=250, deadline=None)
@given(
    name=st.sampled_from(sorted(MECHANISMS)),
    adjacency=st.sampled_from(Adjacency),
    means=st.booleans(),
    seed=st.integers(0, 10**6),
    row=st.integers(0, 119),
    label=st.integers(0, CLASSES - 1),
    before=lengths,
    after=lengths,
    how=hows,
)
def test_no_sample_moves_a_release_further_than_its_receipt_says(
    name, adjacency, means, seed, row, label, before, after, how
) -> None:
    mechanism, (vectors, labels) = MECHANISMS[name](adjacency), blobs(1)
    vectors = vectors.double()
    vectors[row] *= before / vectors[row].norm()
    other, relabelled = vectors.clone(), labels.clone()
    other[row] = new_sample(seed, after, how, blobs(1)[0][row].double())
    if adjacency is ANY:
        relabelled[row] = label
    if adjacency is ADD_REMOVE:
        rest = torch.arange(len(labels)) != row
        other, relabelled = vectors[rest], labels[rest]
    broadcast = Prototypes(torch.randn(CLASSES, DIM, generator=Streams(seed).generator("b")), torch.arange(CLASSES))
    rule = ClassMeans() if means and adjacency is SAME else ClassSums(classes=CLASSES)
    context = ReleaseContext(encoder="public", noise=Scales(), summariser=rule, last_broadcast=broadcast)
    with no_noise() as first:
        receipt = mechanism.release(vectors, labels, context).receipt
    with no_noise() as second:
        mechanism.release(other, relabelled, context)
    assert squared_shift(first, second) <= charged(receipt.events)


@pytest.mark.parametrize("name", ["igpp", "vpp", "rapp", "rapp, two centres a class"])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_the_bound_is_nearly_attained(name, adjacency) -> None:
    """Otherwise the test above could not tell a bound that is too small."""
    mechanism, (vectors, labels) = MECHANISMS[name](adjacency), blobs(1)
    vectors[7], other = 100.0, vectors.clone()
    other[7] = -100.0
    relabelled = labels
    if adjacency is ADD_REMOVE:
        rest = torch.arange(len(labels)) != 7
        other, relabelled = vectors[rest], labels[rest]
    context = ReleaseContext(encoder="public", noise=Scales(), summariser=ClassSums(classes=CLASSES))
    with no_noise() as first:
        receipt = mechanism.release(vectors, labels, context).receipt
    with no_noise() as second:
        mechanism.release(other, relabelled, context)
    share = squared_shift(first, second) / charged(receipt.events[-2:])
    assert 0.45 < share <= 1
    if "two" not in name:
        assert share > 0.96


@settings(max_examples=150, deadline=None)
@given(
    adjacency=st.sampled_from(Adjacency),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1e-45, 1e-30, 1.0, 1e30, math.inf, math.nan]),
    clip=st.sampled_from([1e-12, 1e-3, 1.0, 1e12]),
    multiplier=st.sampled_from([1e-6, 3.0, 1e9]),
)
def test_no_sample_moves_a_training_step_further_than_its_event_says(adjacency, seed, scale, clip, multiplier) -> None:
    config = DpSgdConfig(
        clip_norm=clip,
        noise_multiplier=multiplier,
        steps_per_round=1,
        total_steps=1,
        expected_batch_size=1.0,
        adjacency=adjacency,
    )
    rng = torch.Generator().manual_seed(seed)
    gradients = [torch.randn(6, *shape, generator=rng) for shape in ((5, 3), (4,))]
    gradients[0][0] *= scale
    if adjacency is ADD_REMOVE:
        neighbours = [part[1:] for part in gradients]
    else:
        neighbours = [torch.cat([torch.randn(1, *part.shape[1:], generator=rng), part[1:]]) for part in gradients]
    calls = []
    for each in (gradients, neighbours):
        sums = sum_clipped_gradients(each, torch.ones(len(each[0]), dtype=torch.bool), clip, config.grid)
        with no_noise() as noisy:
            assert all(
                bool(mean.isfinite().all()) for mean in config.noisy_mean(sums, GaussianEvent(multiplier), Scales())
            )
        calls.append(noisy)
    assert squared_shift(*calls) <= 1 / Fraction(multiplier) ** 2


@pytest.mark.parametrize("feature", [5e-324, 1e-300, 1e-12, 1e300])
@pytest.mark.parametrize("radius", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("name", ["igpp", "vpp", "rapp"])
def test_extreme_features_and_clip_norms_release_finite_numbers(name, radius, feature) -> None:
    vectors, labels = torch.full((12, DIM), feature, dtype=torch.float64), torch.arange(12) % CLASSES
    mechanism = dataclasses.replace(MECHANISMS[name](SAME), clip_norm=radius)
    upload = opened(mechanism.release(vectors, labels, ReleaseContext(encoder="public"))).prototypes
    assert upload.vectors.isfinite().all()


def test_the_noise_of_a_simulation_is_on_the_same_grid() -> None:
    """Seeded draws are rounded draws of the generator: as close to them as the grid is fine."""
    for scale in (2**20, 2**40):
        drawn = base.SeededNoise(torch.Generator().manual_seed(3)).rounded_gaussian(torch.full((50, 7), scale))
        normal = torch.randn(50, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        assert drawn.dtype is torch.int64
        assert (drawn - scale * normal).abs().max() <= 0.5
