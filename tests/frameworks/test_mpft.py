"""MPFT: what adapter and head learn, that they remember it, and that the teacher uses both."""

from dataclasses import replace
from itertools import pairwise

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


def test_the_path_by_hand():
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
    assert Mpft().path(teacher) is None
    path = Mpft().transcript().path(teacher)
    # 1*4 - 2*1 = 2, so (4, 1) + 2 * (0.5, 3); 1*1 - 2*1 is below zero, so (1, 1) stays
    assert path(torch.tensor([[4.0, 1.0], [1.0, 1.0]])).tolist() == [[5.0, 7.0], [1.0, 1.0]]


SMALL = {"hidden": 16, "epochs": 4, "server_lr": 0.02, "reduction": 1}


def test_on_a_path_the_first_round_is_as_ever_and_then_only_the_head_learns():
    uploads = [upload(0, 1), upload(2, 3, seed=8)]
    shown = [replace(each, on_path=True) for each in uploads]
    ((usual, _),) = rounds(Mpft(**SMALL), uploads)
    told = [
        broadcast.parameters for broadcast, _ in rounds(Mpft(**SMALL).transcript(), uploads, shown, shown)
    ]
    assert all(torch.equal(told[0][key], value) for key, value in usual.parameters.items())
    assert (told[0]["up"] != 0).any()
    for before, after in pairwise(told):
        assert all(torch.equal(before[key], after[key]) for key in ("down", "up"))
        assert not any(torch.equal(before[key], after[key]) for key in ("hidden.weight", "out.bias"))


def test_the_head_learns_from_what_is_on_the_path_as_it_is():
    framework, first = Mpft(**SMALL, dropout=0.0).transcript(), [upload(0, 1, 2, 3)]
    ((teacher, memory),) = rounds(framework, first)
    public = upload(0, 1, 2, 3, seed=9)
    shown = Prototypes(framework.path(teacher)(public.vectors), public.labels, on_path=True)
    # somebody who missed the first broadcast says that it is not on the path, and is put there
    late, early = (framework.generate([each], memory, now([each], t=2))[0] for each in (public, shown))
    assert all(torch.equal(late.parameters[key], early.parameters[key]) for key in late.parameters)
    astray = framework.generate([replace(public, on_path=True)], memory, now([public], t=2))[0]
    assert not torch.equal(late.parameters["out.bias"], astray.parameters["out.bias"])


def test_what_is_put_on_the_path_has_no_variance_that_would_be_wrong():
    framework = Mpft(**SMALL).transcript()
    ((_, memory),) = rounds(framework, [upload(0, 1, 2, 3)])
    known = replace(upload(0, 1, 2, 3, seed=3), variances=torch.ones(4))
    for on_path in (True, False):
        sent = replace(known, on_path=on_path)
        teacher, _ = framework.generate([sent], memory, now([sent], t=2))
        assert ("trust" in teacher.parameters) is on_path


def test_a_path_starts_with_the_first_round_that_has_uploads():
    framework = Mpft(**SMALL).transcript()
    (silent, _), (one, _), (two, _) = rounds(framework, [], [upload(0, 1)], [upload(0, 1, seed=4)])
    assert framework.path(silent) is None
    assert torch.equal(one.parameters["up"], two.parameters["up"])
