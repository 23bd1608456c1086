"""FedProto and FedPCL against the equations."""

import numpy as np
import pytest
import torch

from tests.unit.frameworks.framework_cases import (
    CLASSES,
    DIM,
    cosines,
    cross_entropy,
    gradient,
    own_means,
    serve,
    step,
    upload,
)
from vpdr.errors import InvalidInput
from vpdr.frameworks import FedPcl, FedProto, PredictionInputs
from vpdr.frameworks.aggregation import class_weights
from vpdr.types import Prototypes, Summary


def test_fedproto_by_hand():
    a = Prototypes(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
    b = Prototypes(torch.tensor([[3.0, 4.0]]), torch.tensor([0]))
    weights = torch.tensor([[1.0, 5.0, 1.0, 1.0], [3.0, 9.0, 1.0, 1.0]])
    broadcast = serve(FedProto(), [a, b], weights=weights, dim=2)
    assert broadcast.labels.tolist() == [0, 1]
    # class 0: (1·[1 0] + 3·[3 4]) / 4; class 1: only the first client has it, so its weight is one (B13)
    assert torch.equal(broadcast.vectors, torch.tensor([[2.5, 3.0], [0.0, 2.0]]))


def test_weights_over_the_holders_of_a_class_sum_to_one():
    prototypes = Prototypes.concat([upload(0, 1, 2), upload(1, 2), upload(2)])
    weights = class_weights(prototypes, torch.tensor([0.1, 7.0, 2.0, 1.0, 3.0, 0.0]))
    sums = torch.zeros(3, dtype=torch.float64).index_add_(0, prototypes.labels, weights)
    torch.testing.assert_close(sums, torch.ones(3, dtype=torch.float64))
    assert weights[-1] == 0


def test_published_noise_counts_against_a_prototype():
    prototypes = Prototypes(torch.zeros(3, 2), torch.tensor([0, 0, 1]), torch.tensor([1.0, 4.0, 0.0]))
    weights = class_weights(prototypes, torch.tensor([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3, 1])


@pytest.mark.parametrize("framework", [FedProto(), FedPcl()])
def test_the_less_noisy_upload_dominates_the_average(framework):
    precise = Prototypes(torch.ones(1, DIM), torch.tensor([0]), torch.tensor([1.0]))
    noisy = Prototypes(-torch.ones(1, DIM), torch.tensor([0]), torch.tensor([3.0]))
    broadcast = framework.global_prototypes(serve(framework, [precise, noisy]))
    torch.testing.assert_close(broadcast.vectors, torch.full((1, DIM), 0.5))


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


def contrast(x, table, labels, classes):
    """-log softmax over the classes in `classes`, for samples whose class is among them; else 0."""
    near = np.exp(cosines(x, table) / 0.07)
    rows = [-np.log(near[i, classes.index(y)] / near[i].sum()) if y in classes else 0.0 for i, y in labels]
    return float(np.mean(rows))


def test_fedpcl_with_missing_classes_by_hand():
    a, b = upload(1, 3, seed=2), upload(3, seed=3)
    batch = step(1, 3, 0)  # no client has class 0 or 2: positions are not labels (B6, B14)
    framework = FedPcl()
    broadcast = serve(framework, [a, b])
    g = torch.stack([a.vectors[0], (a.vectors[1] + b.vectors[0]) / 2])
    torch.testing.assert_close(broadcast.global_prototypes.vectors, g)
    labels = list(enumerate([1, 3, 0]))
    losses = framework.losses(batch, broadcast)
    sets = [a.vectors, torch.stack([g[0], b.vectors[0]])]
    expected = np.mean([contrast(batch.features, s, labels, [1, 3]) for s in sets])
    assert losses["global"].item() == pytest.approx(contrast(batch.features, g, labels, [1, 3]), rel=1e-4)
    assert losses["local"].item() == pytest.approx(expected, rel=1e-4)
    assert set(losses) == {"global", "local"}


def test_fedpcl_completes_every_set():
    broadcast = serve(FedPcl(), [upload(0, 1), upload(3), upload()])
    for client in range(3):
        assert sorted(broadcast.client_prototypes.labels[broadcast.client_index == client].tolist()) == [0, 1, 3]


def test_fedpcl_predicts_labels_and_not_positions():
    own = Summary(torch.eye(DIM)[[5, 6]], torch.tensor([1, 3]), torch.tensor([4, 4]))
    prototypes = Prototypes(torch.eye(DIM)[[0, 7]], torch.tensor([0, 1]))
    inputs = PredictionInputs(torch.eye(DIM)[[6, 5, 0]] * 9, torch.zeros(3, CLASSES), own)
    assert FedPcl().predict(inputs, serve(FedPcl(), [prototypes])).tolist()[:2] == [3, 1]
    wide = FedPcl(missing_class_rule="global")
    assert wide.predict(inputs, serve(wide, [prototypes])).tolist() == [3, 1, 0]


def test_fedpcl_without_any_prototype_uses_the_head():
    inputs = PredictionInputs(torch.ones(2, DIM), torch.tensor([[0.0, 1, 0, 0], [0, 0, 0, 1.0]]), own_means())
    assert FedPcl().predict(inputs, serve(FedPcl(), [])).tolist() == [1, 3]


def test_settings_are_checked():
    for bad in (
        lambda: FedProto(weight=-1.0),
        lambda: FedPcl(temperature=0.0),
        lambda: FedPcl(missing_class_rule="zero"),
    ):
        with pytest.raises(InvalidInput):
            bad()
