"""The trivial fix of the baseline: the mean of all releases."""

import pytest
import torch

from tests.conftest import BUDGET, CLASSES, blobs
from tests.rapp.rapp_cases import occasion
from vpdr import ClassMeans, ClassSums, FinchClusters, Igpp
from vpdr.errors import InvalidInput


def released(accumulate: bool, **settings: object):
    mechanism = Igpp.calibrated(BUDGET, 20, clip_norm=40.0, accumulate=accumulate)
    memory = {}
    for t in range(1, 21):
        release = mechanism.release(*blobs(1), occasion(t, memory=memory, **settings))
        memory = release.memory
    return release


@pytest.mark.parametrize("rule", [ClassMeans(), ClassSums(classes=CLASSES)])
def test_twenty_releases_have_a_twentieth_of_the_noise(rule) -> None:
    clean = ClassMeans()(*blobs(1)).vectors
    errors = {
        kind: float((released(kind, summarise=rule).prototypes.vectors - clean).square().mean())
        for kind in (True, False)
    }
    assert errors[True] == pytest.approx(errors[False] / 20, rel=0.4)


def test_the_precision_is_published_where_it_may_be() -> None:
    sums = ClassSums(classes=CLASSES)
    last, mean = (released(kind, summarise=sums).prototypes.variances for kind in (False, True))
    torch.testing.assert_close(mean, last / 20)
    assert released(True).prototypes.variances is None


def test_rows_that_change_cannot_be_averaged() -> None:
    mechanism = Igpp.calibrated(BUDGET, 2, clip_norm=5.0, accumulate=True)
    first = mechanism.release(*blobs(1), occasion())
    with pytest.raises(InvalidInput, match="amazon: releases can be averaged only"):
        mechanism.release(
            torch.randn(9, 32, generator=torch.Generator().manual_seed(0)),
            torch.arange(9) % 2,
            occasion(2, memory=first.memory, summarise=FinchClusters()),
        )
