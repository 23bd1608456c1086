"""FedTGP: training of the generator, and its state between rounds."""

import pytest
import torch

from tests.unit.frameworks.framework_cases import CLASSES, now, rounds, upload
from vpdr.frameworks import FedTgp
from vpdr.frameworks.fedtgp import adaptive_margin, euclidean_distances
from vpdr.types import Prototypes
from vpdr.validation import InvalidInput


def test_the_margin_is_the_largest_of_the_smallest_gaps():
    prototypes = Prototypes(torch.tensor([[0.0], [2.0], [3.0], [10.0]]), torch.tensor([0, 0, 1, 3]))
    assert adaptive_margin(prototypes, 100.0) == pytest.approx(7)  # means 1, 3, 10: gaps 2, 2, 7
    assert adaptive_margin(prototypes, 5.0) == 5
    assert adaptive_margin(upload(2), 100.0) == 100


def test_distances_survive_equal_points():
    points = torch.full((1, 4), 1 / 3)
    targets = points.clone().requires_grad_()
    apart = euclidean_distances(points, targets)
    assert torch.autograd.grad(apart.sum(), targets)[0].isfinite().all()
    far = euclidean_distances(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    assert far.item() == pytest.approx(5)


def test_one_step_of_fedtgp_by_autograd_on_the_plain_formula():
    uploads = [upload(0, 1, seed=1), upload(1, 3, seed=2)]
    framework = FedTgp(epochs=1, server_lr=0.5)
    start = framework.init_state(now(uploads))["generator"]
    p = {key: value.double().requires_grad_() for key, value in start.items()}
    out = torch.relu(p["embedding"] @ p["hidden.weight"].T + p["hidden.bias"]) @ p["out.weight"].T + p["out.bias"]
    prototypes = Prototypes.concat(uploads)
    apart = (prototypes.vectors.double()[:, None] - out).norm(dim=2)
    means = [prototypes.vectors[prototypes.labels == c].double().mean(0) for c in (0, 1, 3)]
    gaps = [min((a - b).norm().item() for b in means if b is not a) for a in means]
    apart = apart + max(gaps) * torch.nn.functional.one_hot(prototypes.labels, CLASSES)
    loss = (torch.logsumexp(-apart, 1) + apart.gather(1, prototypes.labels[:, None])[:, 0]).mean()
    slopes = torch.autograd.grad(loss, list(p.values()))
    [(_, state)] = rounds(framework, uploads)
    for (key, value), slope in zip(p.items(), slopes, strict=True):
        torch.testing.assert_close(state["generator"][key], (value - 0.5 * slope).float(), rtol=1e-4, atol=1e-5)


def test_fedtgp_broadcasts_only_classes_that_were_uploaded_in_this_run():
    results = rounds(FedTgp(epochs=2), [upload(0)], [], [upload(3)])
    assert [broadcast.labels.tolist() for broadcast, _ in results] == [[0], [0], [0, 3]]


def test_fedtgp_keeps_its_generator():
    first, without_uploads, third = rounds(FedTgp(epochs=2), [upload(0, 1)], [], [upload(0, 1)])
    assert torch.equal(first[0].vectors, without_uploads[0].vectors)
    afresh = rounds(FedTgp(epochs=2), [upload(0, 1)])[0]
    assert torch.equal(first[0].vectors, afresh[0].vectors)
    assert not torch.equal(third[0].vectors, first[0].vectors)


def test_fedtgp_moves_towards_the_uploads():
    uploads = [upload(0, 1, 2, 3)]
    broadcasts = {epochs: rounds(FedTgp(epochs=epochs, server_lr=0.01), uploads)[0][0] for epochs in (0, 300)}
    away = {k: (v.vectors - uploads[0].vectors).norm().item() for k, v in broadcasts.items()}
    assert away[300] < 0.8 * away[0]


def test_small_batches_are_shuffled_by_round():
    uploads = [upload(0, 1, 2, 3, seed=s) for s in range(3)]
    framework = FedTgp(epochs=2, batch=5)
    state = framework.init_state(now(uploads))
    first, again, later = (framework.aggregate(uploads, state, now(uploads, round=round))[0] for round in (1, 1, 2))
    assert torch.equal(first.vectors, again.vectors)
    assert not torch.equal(first.vectors, later.vectors)


def test_settings_are_checked():
    for bad in (lambda: FedTgp(server_lr=0.0), lambda: FedTgp(epochs=-1)):
        with pytest.raises(InvalidInput):
            bad()
