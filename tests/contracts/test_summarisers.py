"""The contract of every summariser."""

import pytest
import torch

from tests.conftest import CLASSES, DIM, blobs
from tests.contracts.plug_ins import with_dummies
from vpdr import SUMMARISERS, Adjacency, ClassMeans, ClassSums
from vpdr.mechanisms.base import clip, describe_sensitivity
from vpdr.privacy.guarantee import SensitivityBasis
from vpdr.prototypes import NoSensitivity, Summariser
from vpdr.prototypes.summarisers import SummariserConfig
from vpdr.rng import Grid, Streams

RADIUS = 5.0
EVERY = pytest.mark.parametrize("kind", with_dummies(SUMMARISERS))


def make(kind: str, min_count: int = 1) -> Summariser:
    return SUMMARISERS[kind].from_config(SummariserConfig(classes=CLASSES, min_count=min_count))


@EVERY
def test_it_is_built_from_a_configuration(kind) -> None:
    rule = make(kind, min_count=3)
    assert isinstance(rule, Summariser)
    assert not isinstance(rule, ClassMeans) or rule.min_count == 3
    assert not isinstance(rule, ClassSums) or rule.classes == CLASSES


@pytest.mark.parametrize("adjacency", Adjacency)
@EVERY
def test_it_states_a_sensitivity_or_that_it_has_none(kind, adjacency) -> None:
    assert describe_sensitivity(adjacency, make(kind)).startswith(("l2 ", "none: "))


@EVERY
def test_sizes_count_the_samples_of_each_row(kind) -> None:
    vectors, labels = blobs(1)
    summary = make(kind)(clip(vectors, RADIUS), labels)
    assert summary.vectors.shape == (len(summary.labels), DIM)
    assert int(summary.sizes.sum()) == len(labels)
    assert set(summary.labels.tolist()) == set(range(CLASSES))


@EVERY
def test_rows_add_up_samples_on_a_grid(kind) -> None:
    """A mechanism adds whole numbers up, and gets the rows of the same samples in real numbers."""
    (vectors, labels), grid, rule = blobs(1), Grid.for_noise(RADIUS, RADIUS), make(kind)
    whole = grid.clip(vectors.double(), RADIUS)
    rows, clean = rule.assign(whole, labels), rule(grid.to_real(whole), labels)
    assert rows.sum(whole).dtype is torch.int64
    assert torch.equal(rows.labels, clean.labels)
    assert torch.equal(rows.sizes, clean.sizes)
    torch.testing.assert_close(grid.to_real(rows.sum(whole)) / rule.divisors(rows.sizes)[:, None], clean.vectors)


@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE_SAME_LABEL, Adjacency.REPLACE_ONE])
@EVERY
def test_replacing_a_sample_moves_all_rows_by_at_most_what_is_stated(kind, adjacency) -> None:
    rule = make(kind)
    if rule.basis is not SensitivityBasis.PROVED:
        pytest.skip("its sensitivity is as published, and known not to hold")
    vectors, labels = blobs(1)
    first = rule(clip(vectors.double(), RADIUS), labels)
    try:
        unit = rule.sensitivity(adjacency, RADIUS, first.sizes)
    except NoSensitivity:
        pytest.skip("no sensitivity under this adjacency")
    rng = Streams(0).generator("neighbours")
    for row in range(0, len(labels), 7):
        other, changed = vectors.double(), labels.clone()
        other[row] = -100 * other[row] + torch.randn(DIM, generator=rng, dtype=torch.float64)
        if adjacency is Adjacency.REPLACE_ONE:
            changed[row] = (changed[row] + 1) % CLASSES
        second = rule(clip(other, RADIUS), changed)
        moved = ((first.vectors - second.vectors).norm(dim=1) / unit).square().sum()
        if rule.counts_are_private(adjacency):
            moved += ((first.sizes - second.sizes).double() / (unit / RADIUS)).square().sum()
        assert moved <= 1 + 1e-9
