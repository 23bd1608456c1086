"""MPFT: training of adapter and head, their state between rounds, and distillation from both."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.unit.frameworks.framework_cases import CLASSES, DIM, now, rng, rounds, serve, step, upload
from vpdr.frameworks import Mpft
from vpdr.frameworks.base import two_layers
from vpdr.frameworks.mpft import apply_adapter
from vpdr.prototypes import ClassMeans, KMeansClusters
from vpdr.types import Prototypes
from vpdr.validation import InvalidInput


def test_the_mpft_adapter_starts_as_the_identity():
    model = Mpft(hidden=16).init_state(now([]))["model"]
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


def test_a_round_without_uploads_keeps_the_model():
    (one, _), (two, _) = rounds(Mpft(hidden=16, epochs=2), [upload(0, 1)], [])
    assert all(torch.equal(one.parameters[key], two.parameters[key]) for key in one.parameters)


@pytest.mark.parametrize("squared", [True, False])
def test_mpft_loss_by_hand_with_the_adapter_in_the_teacher(squared):
    framework, batch = Mpft(hidden=16, epochs=60, server_lr=0.02, reduction=1, kd_tau2=squared), step(0, 1, 3)
    teacher = serve(framework, [upload(0, 1), upload(1, 3, seed=8)])
    p = {key: value.double().numpy() for key, value in teacher.parameters.items()}

    def divergence(up):
        b = batch.frozen_features.double().numpy()
        adapted = b + np.maximum(b @ p["down"].T, 0) @ up.T
        hidden = np.maximum(adapted @ p["hidden.weight"].T + p["hidden.bias"], 0)
        t = np.exp((hidden @ p["out.weight"].T + p["out.bias"]) / 4)
        s = np.exp(batch.logits.detach().double().numpy() / 4)
        t, s = t / t.sum(1, keepdims=True), s / s.sum(1, keepdims=True)
        return 0.3 * (16 if squared else 1) * (t * np.log(t / s)).sum(1).mean()

    result = framework.losses(batch, teacher)["distil"].item()
    assert result == pytest.approx(divergence(p["up"]), rel=1e-4)
    assert result != pytest.approx(divergence(0 * p["up"]), rel=1e-2)  # B8


def test_the_mpft_teacher_gets_no_gradient():
    framework, batch = Mpft(hidden=16, epochs=2), step(0, 1)
    teacher = serve(framework, [upload(0, 1)])
    assert not any(value.requires_grad for value in teacher.parameters.values())
    distil = framework.losses(batch, teacher)["distil"]
    assert torch.autograd.grad(distil, batch.features)[0].isfinite().all()


def test_the_mpft_server_learns_to_classify_its_uploads():
    uploads = [upload(0, 1, 2, 3)]
    framework = Mpft(hidden=64, epochs=80, weight=1.0)
    teacher = serve(framework, uploads)
    model = teacher.parameters
    assert two_layers(model, apply_adapter(model, uploads[0].vectors)).argmax(1).tolist() == [0, 1, 2, 3]


def test_mpft_can_take_several_prototypes_per_class():
    assert Mpft().summariser == ClassMeans()
    framework = Mpft(hidden=16, epochs=2, summariser=KMeansClusters(rate=0.1))
    points = torch.randn(40, DIM, generator=rng()).double()
    summary = framework.summariser(points, torch.zeros(40, dtype=torch.int64))
    assert len(summary.labels) == 4
    assert serve(framework, [Prototypes(summary.vectors.float(), summary.labels)]).parameters


def test_settings_are_checked():
    for bad in (lambda: Mpft(dropout=1.0), lambda: Mpft(temperature=0.0)):
        with pytest.raises(InvalidInput):
            bad()


def test_the_feature_map_by_hand():
    teacher = Mpft().unpack(
        {
            "down": torch.tensor([[1.0, -2.0]]),
            "up": torch.tensor([[0.5], [3.0]]),
            "hidden.weight": torch.zeros(1, 2),
            "hidden.bias": torch.zeros(1),
            "out.weight": torch.zeros(2, 1),
            "out.bias": torch.zeros(2),
        }
    )
    assert Mpft().feature_map(teacher) is None
    feature_map = Mpft().with_broadcast_features().feature_map(teacher)
    # 1*4 - 2*1 = 2, so (4, 1) + 2 * (0.5, 3); 1*1 - 2*1 is below zero, so (1, 1) stays
    assert feature_map(torch.tensor([[4.0, 1.0], [1.0, 1.0]])).tolist() == [[5.0, 7.0], [1.0, 1.0]]


SMALL = {"hidden": 16, "epochs": 4, "server_lr": 0.02, "reduction": 1}


def test_with_broadcast_features_only_the_head_is_trained_after_the_first_round():
    uploads = [upload(0, 1), upload(2, 3, seed=8)]
    adapted_uploads = [replace(each, in_broadcast_space=True) for each in uploads]
    ((reference, _),) = rounds(Mpft(**SMALL), uploads)
    broadcasts = [
        broadcast.parameters
        for broadcast, _ in rounds(Mpft(**SMALL).with_broadcast_features(), uploads, adapted_uploads, adapted_uploads)
    ]
    assert all(torch.equal(broadcasts[0][key], value) for key, value in reference.parameters.items())
    assert (broadcasts[0]["up"] != 0).any()
    for before, after in pairwise(broadcasts):
        assert all(torch.equal(before[key], after[key]) for key in ("down", "up"))
        assert not any(torch.equal(before[key], after[key]) for key in ("hidden.weight", "out.bias"))


def test_the_head_is_trained_on_uploads_in_adapter_space():
    framework, first = Mpft(**SMALL, dropout=0.0).with_broadcast_features(), [upload(0, 1, 2, 3)]
    ((teacher, state),) = rounds(framework, first)
    public = upload(0, 1, 2, 3, seed=9)
    adapted_uploads = Prototypes(framework.feature_map(teacher)(public.vectors), public.labels, in_broadcast_space=True)
    # the upload of a client without the first broadcast is marked, and the server applies the adapter
    late, early = (framework.aggregate([each], state, now([each], round=2))[0] for each in (public, adapted_uploads))
    assert all(torch.equal(late.parameters[key], early.parameters[key]) for key in late.parameters)
    astray = framework.aggregate([replace(public, in_broadcast_space=True)], state, now([public], round=2))[0]
    assert not torch.equal(late.parameters["out.bias"], astray.parameters["out.bias"])


def test_uploads_that_the_server_adapts_have_no_variances():
    framework = Mpft(**SMALL).with_broadcast_features()
    ((_, state),) = rounds(framework, [upload(0, 1, 2, 3)])
    known = replace(upload(0, 1, 2, 3, seed=3), variances=torch.ones(4))
    for in_broadcast_space in (True, False):
        sent = replace(known, in_broadcast_space=in_broadcast_space)
        teacher, _ = framework.aggregate([sent], state, now([sent], round=2))
        assert ("trust" in teacher.parameters) is in_broadcast_space


def test_the_feature_map_starts_with_the_first_round_that_has_uploads():
    framework = Mpft(**SMALL).with_broadcast_features()
    (before, _), (one, _), (two, _) = rounds(framework, [], [upload(0, 1)], [upload(0, 1, seed=4)])
    assert framework.feature_map(before) is None
    assert torch.equal(one.parameters["up"], two.parameters["up"])
