"""FedProto against the equations."""

import numpy as np
import pytest
import torch

from tests.unit.frameworks.framework_cases import DIM, cross_entropy, gradient, serve, step, upload
from vpdr.frameworks import FedProto
from vpdr.types import Prototypes
from vpdr.validation import InvalidInput


def test_fedproto_by_hand():
    a = Prototypes(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
    b = Prototypes(torch.tensor([[3.0, 4.0]]), torch.tensor([0]))
    weights = torch.tensor([[1.0, 5.0, 1.0, 1.0], [3.0, 9.0, 1.0, 1.0]])
    broadcast = serve(FedProto(), [a, b], weights=weights, dim=2)
    assert broadcast.labels.tolist() == [0, 1]
    # class 0: (1·[1 0] + 3·[3 4]) / 4; class 1: only the first client has it, so its weight is one (B13)
    assert torch.equal(broadcast.vectors, torch.tensor([[2.5, 3.0], [0.0, 2.0]]))


def test_a_class_of_weight_zero_is_missing():
    broadcast = serve(FedProto(), [upload(0, 1)], weights=torch.tensor([[1.0, 0, 1, 1]]))
    assert broadcast.labels.tolist() == [0]


def test_fedproto_aligns_with_the_own_class_only():
    framework, batch = FedProto(), step(0, 1, 1, 3)
    prototypes = upload(0, 1, 2, 3, seed=5)
    align = framework.losses(batch, serve(framework, [prototypes]))["align"]
    x, g = batch.features.detach().numpy(), prototypes.vectors.numpy()
    own = g[[0, 1, 1, 3]]
    np.testing.assert_allclose(align.item(), 0.1 * ((x - own) ** 2).mean(), rtol=1e-5)
    np.testing.assert_allclose(gradient(align, batch), 0.1 * 2 * (x - own) / (4 * DIM), rtol=1e-4, atol=1e-7)
    moved = Prototypes(torch.where(prototypes.labels[:, None] == 0, prototypes.vectors, 99.0), prototypes.labels)
    other = framework.losses(batch, serve(framework, [moved]))["align"]
    assert (gradient(align, batch)[0] == gradient(other, batch)[0]).all()  # B1


def test_a_sample_without_prototype_counts_in_the_mean_as_zero():
    framework, batch, prototypes = FedProto(), step(0, 2), upload(0)
    align = framework.losses(batch, serve(framework, [prototypes]))["align"].item()
    alone = ((batch.features[0] - prototypes.vectors[0]) ** 2).mean().item()
    assert align == pytest.approx(0.1 * alone / 2, rel=1e-5)


def test_fedproto_adds_the_cross_entropy_of_the_head():
    batch = step(0, 1, 3)
    losses = FedProto().losses(batch, upload(0))
    assert losses["task"].item() == pytest.approx(cross_entropy(batch.logits, batch.labels), rel=1e-5)


def test_settings_are_checked():
    with pytest.raises(InvalidInput):
        FedProto(weight=-1.0)
