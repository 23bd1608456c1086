"""The momentum teacher and the distillation against the equations."""

import io

import numpy as np
import pytest
import torch

from tests.unit.regulariser.regulariser_cases import R, batch, first_parameter, make_head, shift_parameters
from vpdr.regulariser import Dcr


@pytest.mark.parametrize("squared", [False, True])
def test_distillation_by_hand(squared):
    head = make_head().eval()
    regulariser, (z, logits, weights) = Dcr(clip_norm=R, kd_tau2=squared).make_regulariser(head), batch()
    t, s = np.exp(head(z).detach().numpy() / 4), np.exp(logits.detach().numpy() / 4)
    t, s = t / t.sum(1, keepdims=True), s / s.sum(1, keepdims=True)
    expected = 0.05 * (16 if squared else 1) * (t * np.log(t / s)).sum(1).mean()
    assert regulariser.loss(z, logits, weights).item() == pytest.approx(expected, rel=1e-4)
    gap = np.abs(head(z).detach().numpy() - logits.detach().numpy()).mean()
    assert regulariser.teacher_student_gap(z, logits, weights).item() == pytest.approx(gap, rel=1e-5)


def test_distillation_is_zero_when_teacher_and_student_agree():
    head = make_head().eval()
    regulariser, (z, _, weights) = Dcr(clip_norm=R).make_regulariser(head), batch()
    assert regulariser.loss(z, head(z), weights).item() == pytest.approx(0, abs=1e-8)
    assert regulariser.teacher_student_gap(z, head(z), weights) == 0


def test_the_teacher_gets_no_gradient_and_passes_none_to_the_features():
    regulariser, (z, logits, weights) = Dcr(clip_norm=R).make_regulariser(make_head()), batch()
    regulariser.loss(z, logits, weights).backward()
    assert z.grad is None
    assert logits.grad is not None
    assert all(value.grad is None and not value.requires_grad for value in regulariser.parameters())


def test_the_teacher_is_a_copy_that_never_trains():
    head = make_head().train()
    regulariser = Dcr(clip_norm=R).make_regulariser(head).train()
    z, _, _ = batch()
    assert not any(part.training for part in regulariser.teacher.modules())
    assert head.training
    assert torch.equal(regulariser.teacher(z), regulariser.teacher(z))
    before = first_parameter(regulariser.teacher)
    shift_parameters(head, 1.0)
    assert first_parameter(regulariser.teacher) == before
    assert all(value.requires_grad for value in head.parameters())


def test_the_moving_average_in_closed_form():
    head = make_head()
    regulariser, start = Dcr(clip_norm=R, decay=0.9).make_regulariser(head), first_parameter(head)
    values = []
    for _ in range(10):
        shift_parameters(head, 0.5)
        values.append(first_parameter(head))
        regulariser.after_step(head)
    expected = 0.9**10 * start + sum(0.1 * 0.9 ** (9 - k) * value for k, value in enumerate(values))
    assert first_parameter(regulariser.teacher) == pytest.approx(expected, rel=1e-5)


def test_bias_correction_forgets_the_start():
    head = make_head()
    regulariser = Dcr(clip_norm=R, decay=0.9, bias_correction=True).make_regulariser(head)
    values = []
    for _ in range(5):
        shift_parameters(head, 0.5)
        values.append(first_parameter(head))
        regulariser.after_step(head)
    weights = np.array([0.9 ** (4 - k) for k in range(5)])
    assert first_parameter(regulariser.teacher) == pytest.approx((weights * values).sum() / weights.sum(), rel=1e-5)


@pytest.mark.parametrize("follows", [True, False])
def test_warm_up(follows):
    head, (z, logits, weights) = make_head(), batch()
    regulariser = Dcr(clip_norm=R, decay=0.5, warmup_steps=2, ema_while_waiting=follows).make_regulariser(head)
    start, active = first_parameter(head), []
    shift_parameters(head, 1.0)
    for _ in range(3):
        active.append(regulariser.loss(z, logits, weights).item() > 0)
        regulariser.after_step(head)
    assert active == [False, False, True]
    assert first_parameter(regulariser.teacher) == pytest.approx(start + 1 - (0.5**3 if follows else 0.5), rel=1e-5)


def test_a_teacher_may_start_after_the_first_round():
    head, (z, logits, weights) = make_head(), batch()
    regulariser = Dcr(clip_norm=R, teacher_init="after_round_1").make_regulariser(head)
    shift_parameters(head, 1.0)
    regulariser.after_step(head)
    assert regulariser.loss(z, logits, weights) == 0
    regulariser.after_round(head)
    assert first_parameter(regulariser.teacher) == first_parameter(head)
    assert regulariser.loss(z, logits, weights) > 0
    shift_parameters(head, 1.0)
    regulariser.after_round(head)
    assert first_parameter(regulariser.teacher) != first_parameter(head)


def test_a_resumed_regulariser_continues():
    dcr = Dcr(clip_norm=R, decay=0.9, bias_correction=True, warmup_steps=3, teacher_init="after_round_1")
    head, (z, logits, weights) = make_head(), batch()
    regulariser = dcr.make_regulariser(head)
    for _ in range(4):
        shift_parameters(head, 0.1)
        regulariser.after_step(head)
    regulariser.after_round(head)
    file = io.BytesIO()
    torch.save(regulariser.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    resumed = dcr.make_regulariser(make_head(5))
    resumed.load_state_dict(state)
    for each in (regulariser, resumed):
        each.after_step(head)
    assert torch.equal(regulariser.loss(z, logits, weights), resumed.loss(z, logits, weights))
    assert regulariser.loss(z, logits, weights) > 0
    assert first_parameter(regulariser.teacher) == first_parameter(resumed.teacher)
