"""FedPLVM against the equations."""

import numpy as np
import pytest
import torch

from tests.unit.frameworks.framework_cases import (
    CLUSTER_LABELS,
    DIM,
    cluster_upload,
    cosines,
    negative_log_shares,
    serve,
    step,
)
from vpdr.frameworks import FedPlvm
from vpdr.frameworks.base import log_positive_mass
from vpdr.frameworks.fedplvm import mean_positive_log_prob, signed_power
from vpdr.prototypes import FinchClusters
from vpdr.types import Prototypes, TrainBatch
from vpdr.validation import InvalidInput


def power(s: np.ndarray) -> np.ndarray:
    return np.sign(s) * ((np.abs(s) + 1e-4) ** 0.25 - 1e-4**0.25)


def test_few_uploads_are_clustered_too():
    ends = [
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([[1.0, 0.01]]),
        torch.tensor([[0.0, 1.0]]),
        torch.tensor([[0.01, 1.0]]),
    ]
    broadcast = serve(FedPlvm(), [Prototypes(e, torch.tensor([0])) for e in ends], dim=2)
    assert len(broadcast.labels) == 2  # D14: a plain mean would give one


@pytest.mark.parametrize("mean_correction", [False, True])
def test_fedplvm_by_hand(mean_correction):
    batch, prototypes = step(0, 1, 3), cluster_upload()
    losses = FedPlvm(mean_correction=mean_correction).losses(batch, prototypes)
    near = power(cosines(batch.features, prototypes.vectors))
    assert losses["contrast"].item() == pytest.approx(
        0.5 * negative_log_shares(near / 0.07, [0, 1, 3]).mean(), rel=1e-4
    )
    own = np.array([0, 1, 3])[:, None] == np.array(CLUSTER_LABELS)
    missing = np.abs((near * own).sum(1) - own.sum(1)) / (own.sum(1) if mean_correction else 1)
    assert losses["correct"].item() == pytest.approx(0.5 * missing.mean(), rel=1e-4)


def test_the_authors_variant_means_logs_over_positives():
    batch, prototypes = step(0, 3), cluster_upload()
    near = power(cosines(batch.features, prototypes.vectors)) / 0.07
    logs = near - np.log(np.exp(near).sum(1, keepdims=True))
    own = np.array([0, 3])[:, None] == np.array(CLUSTER_LABELS)
    expected = -0.5 * ((logs * own).sum(1) / own.sum(1)).mean()
    loss = FedPlvm(positive_reduction="authors").losses(batch, prototypes)["contrast"].item()
    assert loss == pytest.approx(expected, rel=1e-4)
    assert loss != pytest.approx(FedPlvm().losses(batch, prototypes)["contrast"].item(), rel=1e-2)


def test_log_of_the_sum_needs_one_close_positive_only():
    logits, own = torch.tensor([[5.0, -5.0, 0.0]]), torch.tensor([[True, True, False]])
    assert log_positive_mass(logits, own).item() > -0.01
    assert mean_positive_log_prob(logits, own).item() < -4


def test_rows_without_positives_have_neither_value_nor_gradient():
    logits = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    none = torch.zeros(2, 3, dtype=torch.bool)
    for rule in (log_positive_mass, mean_positive_log_prob):
        value = rule(logits, none)
        assert (value == 0).all()
        assert (torch.autograd.grad(value.sum(), logits)[0] == 0).all()


def test_the_smoothed_power_has_a_finite_slope_at_zero():
    s = torch.tensor([0.0, 1e-9, -1e-9, 1.0, -1.0]).requires_grad_()
    value = signed_power(s, 0.25, 1e-4)
    (slope,) = torch.autograd.grad(value.sum(), s)
    assert slope.isfinite().all()
    assert slope.abs().max() < 251
    np.testing.assert_allclose(value[3:].detach(), [0.9000, -0.9000], atol=1e-4)
    assert value[0] == 0


def test_a_feature_at_a_right_angle_to_every_prototype_has_a_finite_gradient():
    features = torch.eye(DIM)[:1].clone().requires_grad_()
    prototypes = Prototypes(torch.eye(DIM)[1:3], torch.tensor([0, 1]))
    batch = TrainBatch(features, torch.zeros(1, 4), torch.tensor([0]), features.detach(), torch.ones(1))
    loss = sum(FedPlvm().losses(batch, prototypes).values())
    assert torch.autograd.grad(loss, features)[0].isfinite().all()


def test_fedplvm_clients_cluster_without_early_exit():
    assert FedPlvm().summariser == FinchClusters(early_exit=False)


def test_settings_are_checked():
    for bad in (lambda: FedPlvm(positive_reduction="other"), lambda: FedPlvm(sparsity=0.0)):
        with pytest.raises(InvalidInput):
            bad()
