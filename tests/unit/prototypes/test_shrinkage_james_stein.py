"""The balanced form, which says in closed form what the general one should find."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.reference.james_stein import Guard, anova_james_stein
from tests.unit.mechanisms.rapp_cases import grid, noisy
from vpdr.prototypes.shrinkage import blup


def test_a_balanced_case_by_hand() -> None:
    """Two clients, two classes, one coordinate: grand 1, class ±2, client ±0.5, rest 0."""
    observed = torch.tensor([[[3.5], [-0.5]], [[2.5], [-1.5]]], dtype=torch.float64)
    shrunk = anova_james_stein(observed, 0.5, Guard(strictness=0.0))
    # energies 4·1, 2·(4+4)=16, 2·(.25+.25)=1, 0; noise .5 each: factors 7/8, 31/32, 1/2, 0
    expected = 0.875 + 31 / 32 * torch.tensor([2.0, -2.0]) + 0.5 * torch.tensor([[0.5], [-0.5]])
    torch.testing.assert_close(shrunk[..., 0], expected.double())


def test_the_guard_removes_what_may_be_noise() -> None:
    noise = torch.ones(4, 10, dtype=torch.float64)
    observed = noisy(torch.zeros(4, 10, 256, dtype=torch.float64), noise, 8)
    assert not anova_james_stein(observed, 1.0, Guard(strictness=4.0)).any()
    floor = anova_james_stein(observed, 1.0, Guard(strictness=4.0, floor=0.02))
    spread = observed.mean(0) - observed.mean((0, 1))
    torch.testing.assert_close(floor, (0.02 * spread).expand(4, -1, -1))
    bins = torch.arange(256).tensor_split(4)
    assert anova_james_stein(observed + 3, 1.0, bins=bins).mean() == pytest.approx(3, rel=0.1)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), m=st.integers(2, 8), c=st.integers(2, 8), v=st.floats(0.01, 10))
def test_both_forms_agree_where_both_apply(seed, m, c, v) -> None:
    """On balanced data the two are one formula, as long as no component is at its lower end."""
    noise = torch.full((m, c), v, dtype=torch.float64)
    observed = noisy(grid(seed, (m, c, 512), (2.0, 1.0, 0.5, 0.2)), noise, seed)
    result = blup(observed, noise)
    part = result.components
    assume(min(part.grand, part.clients, part.residual) > 0 and part.classes > 1e-3 * v)
    balanced = anova_james_stein(observed, v, Guard(strictness=0.0))
    assert float((result.per_client - balanced).norm()) <= 1e-10 * float(balanced.norm())
