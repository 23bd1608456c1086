"""The contract of every regulariser."""

import pytest
import torch
from torch import nn

from tests.contracts.plug_ins import with_dummies
from tests.unit.regulariser.regulariser_cases import R, batch, make_head
from vpdr import REGULARISERS
from vpdr.regulariser import RegulariserConfig

EVERY = pytest.mark.parametrize("name", with_dummies(REGULARISERS))


def make(name: str) -> RegulariserConfig:
    return REGULARISERS[name].from_config(R, {})


@EVERY
def test_every_config_makes_a_regulariser(name):
    config = make(name)
    regulariser = config.make_regulariser(make_head())
    z, logits, weights = batch()
    assert isinstance(config, RegulariserConfig)
    assert isinstance(regulariser, nn.Module)
    assert regulariser.transform_features(z).shape == z.shape
    for value in (regulariser.loss(z, logits, weights), regulariser.teacher_student_gap(z, logits, weights)):
        assert value.shape == ()
        assert value.isfinite()
    regulariser.after_step(make_head(1))
    regulariser.after_round(make_head(1))


@EVERY
def test_rows_of_weight_zero_change_nothing(name):
    regulariser = make(name).make_regulariser(make_head())
    z, logits, _ = batch(5)
    weights = torch.tensor([1.0, 1, 1, 0, 0])
    for measure in (regulariser.loss, regulariser.teacher_student_gap):
        torch.testing.assert_close(measure(z, logits, weights), measure(z[:3], logits[:3], torch.ones(3)))


@EVERY
def test_without_weights_all_rows_count_alike(name):
    regulariser, (z, logits, weights) = (make(name).make_regulariser(make_head()), batch())
    for measure in (regulariser.loss, regulariser.teacher_student_gap):
        assert torch.equal(measure(z, logits), measure(z, logits, weights))
