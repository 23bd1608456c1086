"""The trivial fix of the baseline: the mean of all releases."""

import pytest
import torch

from tests.conftest import BUDGET, CLASSES, blobs, opened
from tests.unit.mechanisms.rapp_cases import release_context
from vpdr import ClassMeans, ClassSums, FinchClusters, Igpp
from vpdr.validation import InvalidInput


def released(accumulate: bool, **settings: object):
    mechanism = Igpp.calibrated(BUDGET, 20, clip_norm=40.0, accumulate=accumulate)
    state = {}
    for t in range(1, 21):
        release = opened(mechanism.release(*blobs(1), release_context(t, state=state, **settings)))
        state = release.state
    return release


@pytest.mark.parametrize("rule", [ClassMeans(), ClassSums(classes=CLASSES)])
def test_twenty_releases_have_a_twentieth_of_the_noise(rule) -> None:
    clean = ClassMeans()(*blobs(1)).vectors
    errors = {
        kind: float((released(kind, summariser=rule).prototypes.vectors - clean).square().mean())
        for kind in (True, False)
    }
    assert errors[True] == pytest.approx(errors[False] / 20, rel=0.4)


def test_the_precision_is_published_where_it_may_be() -> None:
    sums = ClassSums(classes=CLASSES)
    last, mean = (released(kind, summariser=sums).prototypes.variances for kind in (False, True))
    torch.testing.assert_close(mean, last / 20)
    assert released(True).prototypes.variances is None


def test_rows_that_change_cannot_be_averaged() -> None:
    mechanism = Igpp.calibrated(BUDGET, 2, clip_norm=5.0, accumulate=True)
    first = opened(mechanism.release(*blobs(1), release_context()))
    with pytest.raises(InvalidInput, match="amazon: releases can be averaged only"):
        mechanism.release(
            torch.randn(9, 32, generator=torch.Generator().manual_seed(0)),
            torch.arange(9) % 2,
            release_context(2, state=first.state, summariser=FinchClusters()),
        )
