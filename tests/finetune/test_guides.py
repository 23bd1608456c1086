"""What every guide does, and soft clipping against the equation."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from guide_cases import SETTINGS, R, batch, make_head, norms_after, rng
from torch import nn

from vpdr.errors import InvalidInput
from vpdr.finetune import REGULARISERS, Dcr, Plain, Regulariser


@pytest.mark.parametrize("name", REGULARISERS)
def test_every_regulariser_gives_a_guide(name):
    regulariser = REGULARISERS[name](**SETTINGS[name])
    guide = regulariser.guide(make_head())
    z, logits, weights = batch()
    assert isinstance(regulariser, Regulariser)
    assert isinstance(guide, nn.Module)
    assert guide.reshape(z).shape == z.shape
    for value in (guide.loss(z, logits, weights), guide.gap(z, logits, weights)):
        assert value.shape == ()
        assert value.isfinite()
    guide.follow(make_head(1))
    guide.settle(make_head(1))


@pytest.mark.parametrize("name", REGULARISERS)
def test_rows_of_weight_zero_change_nothing(name):
    guide = REGULARISERS[name](**SETTINGS[name]).guide(make_head())
    z, logits, _ = batch(5)
    weights = torch.tensor([1.0, 1, 1, 0, 0])
    for measure in (guide.loss, guide.gap):
        torch.testing.assert_close(measure(z, logits, weights), measure(z[:3], logits[:3], torch.ones(3)))


def test_plain_adds_nothing():
    guide, (z, logits, weights) = Plain().guide(make_head()), batch()
    assert guide.reshape(z) is z
    assert guide.loss(z, logits, weights) == 0
    assert not guide.state_dict()


def test_soft_clipping_as_in_the_paper():
    guide = Dcr(clip_norm=R).guide(make_head())
    lengths = [0.05 * R, 0.2 * R, 0.95 * R, R, 1e6 * R]
    expected = [0.5 * R, 0.8 * R, 0.95 * R, R / 1.05, R]
    assert norms_after(guide, *lengths) == pytest.approx(expected, rel=1e-5)
    z = torch.randn(3, 6, generator=rng()).numpy()
    by_hand = R / (np.linalg.norm(z, axis=1, keepdims=True) + 0.05 * R) * z
    np.testing.assert_allclose(guide.reshape(torch.from_numpy(z)), by_hand, rtol=1e-5)


def test_soft_clipping_has_one_fixed_point_grows_below_and_shrinks_above():
    guide = Dcr(clip_norm=R, softness=0.1).guide(make_head())
    lengths = np.linspace(0.01, 20, 200).tolist()
    after = norms_after(guide, *lengths)
    assert all(a < b for a, b in itertools.pairwise(after))
    assert all((b > a) == (a < 0.9 * R) for a, b in zip(lengths, after, strict=True))
    assert norms_after(guide, 0.9 * R) == pytest.approx([0.9 * R], rel=1e-6)


def test_without_expansion_short_features_stay():
    guide = Dcr(clip_norm=R, expand=False).guide(make_head())
    assert norms_after(guide, 0.1, 0.95 * R, 2 * R) == pytest.approx([0.1, 0.95 * R, 2 * R / 2.05], rel=1e-5)


def test_a_zero_feature_is_harmless():
    z = torch.zeros(1, 6, requires_grad=True)
    out = Dcr(clip_norm=R).guide(make_head()).reshape(z)
    assert (out == 0).all()
    assert torch.autograd.grad(out.sum(), z)[0].isfinite().all()


def test_weight_zero_is_soft_clipping_only():
    guide, (z, logits, weights) = Dcr(clip_norm=R, weight=0.0).guide(make_head()), batch()
    assert guide.loss(z, logits, weights) == 0
    assert guide.gap(z, logits, weights) > 0


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
