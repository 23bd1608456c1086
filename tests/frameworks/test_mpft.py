"""MPFT: what adapter and head learn, that they remember it, and that the teacher uses both."""

import numpy as np
import pytest
import torch
from framework_cases import CLASSES, DIM, now, rng, rounds, serve, step, upload

from vpdr.errors import InvalidInput
from vpdr.frameworks import Mpft
from vpdr.frameworks.teacher import adapted, scores
from vpdr.prototypes import ClassMeans, KMeansClusters
from vpdr.types import Prototypes


def test_the_mpft_adapter_starts_as_the_identity():
    model = Mpft(hidden=16).start(now([]))["model"]
    assert model["down"].shape == (max(1, DIM // 8), DIM)
    assert (model["up"] == 0).all()
    assert {key: tuple(value.shape) for key, value in model.items() if "." in key} == {
        "hidden.weight": (16, DIM),
        "hidden.bias": (16,),
        "out.weight": (CLASSES, 16),
        "out.bias": (CLASSES,),
    }


def test_the_mpft_adapter_still_learns_in_the_second_round():
    uploads = [upload(0, 1), upload(2, 3)]
    (one, first), (two, second) = rounds(Mpft(hidden=16, epochs=3, reduction=1), uploads, uploads)  # B7
    for key in ("down", "up", "hidden.weight", "out.bias"):
        assert not torch.equal(one.parameters[key], two.parameters[key])
    assert (first["optimiser"]["steps"], second["optimiser"]["steps"]) == (3, 6)


def test_a_silent_round_keeps_the_teacher():
    (one, _), (two, _) = rounds(Mpft(hidden=16, epochs=2), [upload(0, 1)], [])
    assert all(torch.equal(one.parameters[key], two.parameters[key]) for key in one.parameters)


@pytest.mark.parametrize("squared", [True, False])
def test_mpft_loss_by_hand_with_the_adapter_in_the_teacher(squared):
    framework, batch = Mpft(hidden=16, epochs=60, server_lr=0.02, reduction=1, kd_tau2=squared), step(0, 1, 3)
    teacher = serve(framework, [upload(0, 1), upload(1, 3, seed=8)])
    p = {key: value.double().numpy() for key, value in teacher.parameters.items()}

    def divergence(up):
        b = batch.public.double().numpy()
        adapted = b + np.maximum(b @ p["down"].T, 0) @ up.T
        hidden = np.maximum(adapted @ p["hidden.weight"].T + p["hidden.bias"], 0)
        t = np.exp((hidden @ p["out.weight"].T + p["out.bias"]) / 4)
        s = np.exp(batch.logits.detach().double().numpy() / 4)
        t, s = t / t.sum(1, keepdims=True), s / s.sum(1, keepdims=True)
        return 0.3 * (16 if squared else 1) * (t * np.log(t / s)).sum(1).mean()

    found = framework.losses(batch, teacher)["distil"].item()
    assert found == pytest.approx(divergence(p["up"]), rel=1e-4)
    assert found != pytest.approx(divergence(0 * p["up"]), rel=1e-2)  # B8


def test_the_mpft_teacher_gets_no_gradient():
    framework, batch = Mpft(hidden=16, epochs=2), step(0, 1)
    teacher = serve(framework, [upload(0, 1)])
    assert not any(value.requires_grad for value in teacher.parameters.values())
    distil = framework.losses(batch, teacher)["distil"]
    assert torch.autograd.grad(distil, batch.features)[0].isfinite().all()


def test_the_mpft_server_learns_to_tell_its_uploads_apart():
    uploads = [upload(0, 1, 2, 3)]
    framework = Mpft(hidden=64, epochs=80, weight=1.0)
    teacher = serve(framework, uploads)
    model = teacher.parameters
    assert scores(model, adapted(model, uploads[0].vectors)).argmax(1).tolist() == [0, 1, 2, 3]


def test_mpft_can_take_several_prototypes_per_class():
    assert Mpft().summarise == ClassMeans()
    framework = Mpft(hidden=16, epochs=2, summarise=KMeansClusters(rate=0.1))
    points = torch.randn(40, DIM, generator=rng()).double()
    summary = framework.summarise(points, torch.zeros(40, dtype=torch.int64))
    assert len(summary.labels) == 4
    assert serve(framework, [Prototypes(summary.vectors.float(), summary.labels)]).parameters


def test_settings_are_checked():
    for bad in (lambda: Mpft(dropout=1.0), lambda: Mpft(temperature=0.0)):
        with pytest.raises(InvalidInput):
            bad()
