"""Settings of regularisers, and soft clipping against Eq. 15."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from tests.unit.regulariser.regulariser_cases import R, batch, make_head, norms_after, rng
from vpdr.regulariser import Dcr, NoRegularisation, Regulariser
from vpdr.validation import InvalidInput


def test_settings_come_from_the_clip_norm_and_the_config():
    assert Dcr.from_config(R, {"decay": 0.9}) == Dcr(clip_norm=R, decay=0.9)
    assert NoRegularisation.from_config(R, {"decay": 0.9}) == NoRegularisation()


def test_the_base_class_adds_nothing():
    regulariser, (z, logits, weights) = NoRegularisation().make_regulariser(make_head()), batch()
    assert regulariser.transform_features(z) is z
    assert regulariser.loss(z, logits, weights) == 0
    assert not regulariser.state_dict()
    assert type(regulariser) is Regulariser


def test_soft_clipping_as_in_the_paper():
    regulariser = Dcr(clip_norm=R).make_regulariser(make_head())
    lengths = [0.05 * R, 0.2 * R, 0.95 * R, R, 1e6 * R]
    expected = [0.5 * R, 0.8 * R, 0.95 * R, R / 1.05, R]
    assert norms_after(regulariser, *lengths) == pytest.approx(expected, rel=1e-5)
    z = torch.randn(3, 6, generator=rng()).numpy()
    by_hand = R / (np.linalg.norm(z, axis=1, keepdims=True) + 0.05 * R) * z
    np.testing.assert_allclose(regulariser.transform_features(torch.from_numpy(z)), by_hand, rtol=1e-5)


def test_soft_clipping_has_one_fixed_point_grows_below_and_shrinks_above():
    regulariser = Dcr(clip_norm=R, softness=0.1).make_regulariser(make_head())
    lengths = np.linspace(0.01, 20, 200).tolist()
    after = norms_after(regulariser, *lengths)
    assert all(a < b for a, b in itertools.pairwise(after))
    assert all((b > a) == (a < 0.9 * R) for a, b in zip(lengths, after, strict=True))
    assert norms_after(regulariser, 0.9 * R) == pytest.approx([0.9 * R], rel=1e-6)


def test_without_expansion_short_features_stay():
    regulariser = Dcr(clip_norm=R, expand=False).make_regulariser(make_head())
    assert norms_after(regulariser, 0.1, 0.95 * R, 2 * R) == pytest.approx([0.1, 0.95 * R, 2 * R / 2.05], rel=1e-5)


def test_a_zero_feature_is_harmless():
    z = torch.zeros(1, 6, requires_grad=True)
    out = Dcr(clip_norm=R).make_regulariser(make_head()).transform_features(z)
    assert (out == 0).all()
    assert torch.autograd.grad(out.sum(), z)[0].isfinite().all()


def test_weight_zero_is_soft_clipping_only():
    regulariser, (z, logits, weights) = Dcr(clip_norm=R, weight=0.0).make_regulariser(make_head()), batch()
    assert regulariser.loss(z, logits, weights) == 0
    assert regulariser.teacher_student_gap(z, logits, weights) > 0


@pytest.mark.parametrize(
    "bad",
    [
        {"clip_norm": 0.0},
        {"softness": 0.0},
        {"decay": 1.0},
        {"temperature": -1.0},
        {"weight": -0.1},
        {"warmup_steps": -1},
        {"teacher_init": "never"},
    ],
)
def test_settings_are_checked(bad):
    with pytest.raises(InvalidInput):
        Dcr(**({"clip_norm": R} | bad))


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Dcr(clip_norm=R).weight = 1.0


def test_one_call_on_a_batch_equals_the_single_ones() -> None:
    head, features = torch.nn.Linear(4, 3), torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    for config in (Dcr(clip_norm=2.0), NoRegularisation()):
        regulariser = config.make_regulariser(head)
        batch = regulariser(features, head)
        assert torch.equal(batch.features, regulariser.transform_features(features))
        assert torch.equal(batch.logits, head(batch.features))
        assert torch.equal(batch.loss, regulariser.loss(features, batch.logits))
