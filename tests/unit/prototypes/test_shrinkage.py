"""Reading many noisy prototypes together."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.mechanisms.rapp_cases import grid, noisy
from vpdr.prototypes.shrinkage import blup, fit_variance_components
from vpdr.rng import Streams


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 6), c=st.integers(1, 6), d=st.integers(1, 40))
def test_it_is_the_best_linear_prediction(seed, m, c, d) -> None:
    """Henderson's equations against the textbook formula, computed densely."""
    variances = torch.rand(m, c, generator=Streams(seed).generator("v"), dtype=torch.float64) * 3 + 1e-3
    observed = noisy(grid(seed, (m, c, d), (1.0, 2.0, 0.5, 0.1)), variances, seed)
    result = blup(observed, variances)
    part = result.components
    one, eye = np.ones, np.eye
    between = (
        part.grand
        + part.classes * np.kron(one((m, m)), eye(c))
        + part.clients * np.kron(eye(m), one((c, c)))
        + part.residual * eye(m * c)
    )
    total = between + np.diag(variances.flatten().numpy())
    expected = between @ np.linalg.solve(total, observed.reshape(m * c, d).numpy())
    np.testing.assert_allclose(result.per_client.reshape(m * c, d).numpy(), expected, atol=1e-8)
    common = part.grand + part.classes * np.kron(one((1, m)), eye(c))
    solved = np.linalg.solve(total, observed.reshape(m * c, d).numpy())
    share = 1 / (part.residual + variances.numpy())
    share = share / share.sum(0)
    rest = (part.residual * solved).reshape(m, c, d)  # what the class adds at one client only
    np.testing.assert_allclose(result.per_class.numpy(), common @ solved + (share[..., None] * rest).sum(0), atol=1e-8)
    unknown = part.grand + part.classes - np.einsum("ij,ji->i", common, np.linalg.solve(total, common.T))
    assert (result.per_class_variances.numpy() >= unknown - 1e-8).all()
    shares = torch.rand(m, c, generator=Streams(seed).generator("shares"), dtype=torch.float64)
    left = between - between @ np.linalg.solve(total, between)
    loadings = np.concatenate([np.diag(row) for row in shares.numpy()])  # [m·c, c]
    expected = np.einsum("ij,ik,kj->j", loadings, left, loadings)
    np.testing.assert_allclose(result.variance_of_means(shares).numpy(), expected, atol=1e-8)


def test_a_class_of_one_client_is_that_of_the_client() -> None:
    """Nobody can tell its class part from its client part: the shared prototype must hold both."""
    clean = grid(6, (4, 12, 256), (1.0, 1.0, 0.0, 0.0))
    variances = torch.full((4, 12), 1e8, dtype=torch.float64)
    variances[torch.arange(12) % 4, torch.arange(12)] = 0.1
    result = blup(noisy(clean, variances, 6), variances)
    assert (result.per_class - clean[0]).square().mean() < 0.2


def test_components_are_found() -> None:
    variances = torch.rand(12, 10, generator=Streams(1).generator("v"), dtype=torch.float64) * 2
    part = fit_variance_components(noisy(grid(1, (12, 10, 2000), (3.0, 2.0, 1.0, 0.5)), variances, 1), variances)
    assert part.classes == pytest.approx(2.0, rel=0.5)
    assert part.clients == pytest.approx(1.0, rel=0.5)
    assert part.residual == pytest.approx(0.5, rel=0.2)


def test_pure_noise_is_shrunk_to_zero_and_noiseless_prototypes_are_kept() -> None:
    noise = torch.full((4, 10), 5.0, dtype=torch.float64)
    nothing = blup(noisy(torch.zeros(4, 10, 512, dtype=torch.float64), noise, 3), noise).per_client
    assert nothing.square().mean() < 0.05 * 5
    clean = grid(3, (4, 10, 512), (1.0, 1.0, 1.0, 1.0))
    unshrunk = blup(clean, torch.full((4, 10), 1e-12, dtype=torch.float64))
    torch.testing.assert_close(unshrunk.per_client, clean, atol=1e-5, rtol=1e-5)
    exact = blup(clean, torch.zeros(4, 10, dtype=torch.float64))
    torch.testing.assert_close(exact.per_client, clean, atol=1e-5, rtol=1e-5)


def test_shrinking_helps_most_where_noise_is_largest() -> None:
    clean = grid(5, (4, 10, 512), (1.0, 1.0, 0.2, 0.2))
    variances = torch.ones(4, 10, dtype=torch.float64)
    variances[0, :5] = 1e6  # a client that does not have these classes
    observed = noisy(clean, variances, 5)
    result = blup(observed, variances)
    raw, left = ((x - clean).square().mean(2) for x in (observed, result.per_client))
    assert (left < raw).all()
    assert left[0, :5].max() < 1.0  # filled in from the others: better than the grand mean alone
    assert left[1:].mean() < 0.5 * raw[1:].mean()


def test_a_hundred_clients_take_less_than_a_second() -> None:
    noise = torch.ones(100, 10, dtype=torch.float64)
    observed = noisy(grid(2, (100, 10, 512), (1.0, 1.0, 1.0, 1.0)), noise, 2)
    begin = time.perf_counter()
    blup(observed, noise)
    assert time.perf_counter() - begin < 1


_EXTREMES = st.sampled_from([0.0, 1e-300, 1e-30, 1e-8, 1.0, 1e8, 1e40, 1e78, 1e155, 1e300])


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4)),
    size=_EXTREMES,
    spread=st.sampled_from([0.0, 6.0, 60.0]),
    variance=_EXTREMES,
)
def test_every_finite_input_has_a_finite_answer(seed, shape, size, spread, variance) -> None:
    """Whether it fails could otherwise tell something about numbers that nobody has paid for."""
    streams, (m, c, d) = Streams(seed), shape
    far = 10 ** (spread * (torch.rand(m, c, 1, generator=streams.generator("far"), dtype=torch.float64) - 0.5))
    drawn = torch.randn(m, c, d, generator=streams.generator("rows"), dtype=torch.float64)
    estimates = torch.nan_to_num(drawn * size * far)
    unequal = torch.rand(m, c, generator=streams.generator("unequal"), dtype=torch.float64)
    noise = torch.nan_to_num(variance * 10 ** (spread * unequal))
    result = blup(estimates, noise)
    for part in (result.per_client, result.per_class, result.per_class_variances):
        assert part.isfinite().all()
    assert (result.per_class_variances >= 0).all()


def test_prototypes_far_above_their_noise_are_kept() -> None:
    """Too far for the equations to be solved in double precision."""
    estimates = 1e14 * torch.randn(2, 3, 4, generator=Streams(1).generator("rows"), dtype=torch.float64)
    result = blup(estimates, torch.full((2, 3), 1e-12, dtype=torch.float64))
    torch.testing.assert_close(result.per_client, estimates)


def test_numbers_that_are_not_finite_are_accepted() -> None:
    estimates = torch.tensor([[[torch.nan, 1.0], [torch.inf, -torch.inf]]])
    assert blup(estimates, torch.tensor([[torch.nan, torch.inf]])).per_client.isfinite().all()
