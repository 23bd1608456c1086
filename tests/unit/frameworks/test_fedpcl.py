"""FedPCL against the equations."""

import numpy as np
import pytest
import torch

from tests.unit.frameworks.framework_cases import CLASSES, DIM, cosines, own_means, serve, step, upload
from vpdr.frameworks import FedPcl, PredictionInputs
from vpdr.types import Prototypes, Summary
from vpdr.validation import InvalidInput


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
    for bad in (lambda: FedPcl(temperature=0.0), lambda: FedPcl(missing_class_rule="zero")):
        with pytest.raises(InvalidInput):
            bad()
