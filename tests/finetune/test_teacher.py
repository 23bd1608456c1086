"""The momentum teacher and the distillation against the equations."""

import io

import numpy as np
import pytest
import torch
from guide_cases import R, batch, first, make_head, moved

from vpdr.finetune import Dcr


@pytest.mark.parametrize("squared", [False, True])
def test_distillation_by_hand(squared):
    head = make_head().eval()
    guide, (z, logits, weights) = Dcr(clip_norm=R, kd_tau2=squared).guide(head), batch()
    t, s = np.exp(head(z).detach().numpy() / 4), np.exp(logits.detach().numpy() / 4)
    t, s = t / t.sum(1, keepdims=True), s / s.sum(1, keepdims=True)
    expected = 0.05 * (16 if squared else 1) * (t * np.log(t / s)).sum(1).mean()
    assert guide.loss(z, logits, weights).item() == pytest.approx(expected, rel=1e-4)
    gap = np.abs(head(z).detach().numpy() - logits.detach().numpy()).mean()
    assert guide.gap(z, logits, weights).item() == pytest.approx(gap, rel=1e-5)


def test_distillation_is_zero_when_teacher_and_student_agree():
    head = make_head().eval()
    guide, (z, _, weights) = Dcr(clip_norm=R).guide(head), batch()
    assert guide.loss(z, head(z), weights).item() == pytest.approx(0, abs=1e-8)
    assert guide.gap(z, head(z), weights) == 0


def test_the_teacher_gets_no_gradient_and_passes_none_to_the_features():
    guide, (z, logits, weights) = Dcr(clip_norm=R).guide(make_head()), batch()
    guide.loss(z, logits, weights).backward()
    assert z.grad is None
    assert logits.grad is not None
    assert all(value.grad is None and not value.requires_grad for value in guide.parameters())


def test_the_teacher_is_a_copy_that_never_trains():
    head = make_head().train()
    guide = Dcr(clip_norm=R).guide(head).train()
    z, _, _ = batch()
    assert not any(part.training for part in guide.teacher.modules())
    assert head.training
    assert torch.equal(guide.teacher(z), guide.teacher(z))
    before = first(guide.teacher)
    moved(head, 1.0)
    assert first(guide.teacher) == before
    assert all(value.requires_grad for value in head.parameters())


def test_the_moving_average_in_closed_form():
    head = make_head()
    guide, start = Dcr(clip_norm=R, decay=0.9).guide(head), first(head)
    seen = []
    for _ in range(10):
        moved(head, 0.5)
        seen.append(first(head))
        guide.follow(head)
    expected = 0.9**10 * start + sum(0.1 * 0.9 ** (9 - k) * value for k, value in enumerate(seen))
    assert first(guide.teacher) == pytest.approx(expected, rel=1e-5)


def test_bias_correction_forgets_the_start():
    head = make_head()
    guide = Dcr(clip_norm=R, decay=0.9, bias_correction=True).guide(head)
    seen = []
    for _ in range(5):
        moved(head, 0.5)
        seen.append(first(head))
        guide.follow(head)
    weights = np.array([0.9 ** (4 - k) for k in range(5)])
    assert first(guide.teacher) == pytest.approx((weights * seen).sum() / weights.sum(), rel=1e-5)


@pytest.mark.parametrize("follows", [True, False])
def test_warm_up(follows):
    head, (z, logits, weights) = make_head(), batch()
    guide = Dcr(clip_norm=R, decay=0.5, warmup_steps=2, ema_while_waiting=follows).guide(head)
    start, active = first(head), []
    moved(head, 1.0)
    for _ in range(3):
        active.append(guide.loss(z, logits, weights).item() > 0)
        guide.follow(head)
    assert active == [False, False, True]
    assert first(guide.teacher) == pytest.approx(start + 1 - (0.5**3 if follows else 0.5), rel=1e-5)


def test_a_teacher_may_start_after_the_first_round():
    head, (z, logits, weights) = make_head(), batch()
    guide = Dcr(clip_norm=R, teacher_init="after_round_1").guide(head)
    moved(head, 1.0)
    guide.follow(head)
    assert guide.loss(z, logits, weights) == 0
    guide.settle(head)
    assert first(guide.teacher) == first(head)
    assert guide.loss(z, logits, weights) > 0
    moved(head, 1.0)
    guide.settle(head)
    assert first(guide.teacher) != first(head)


def test_a_resumed_guide_continues():
    dcr = Dcr(clip_norm=R, decay=0.9, bias_correction=True, warmup_steps=3, teacher_init="after_round_1")
    head, (z, logits, weights) = make_head(), batch()
    guide = dcr.guide(head)
    for _ in range(4):
        moved(head, 0.1)
        guide.follow(head)
    guide.settle(head)
    file = io.BytesIO()
    torch.save(guide.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    resumed = dcr.guide(make_head(5))
    resumed.load_state_dict(state)
    for copy in (guide, resumed):
        copy.follow(head)
    assert torch.equal(guide.loss(z, logits, weights), resumed.loss(z, logits, weights))
    assert guide.loss(z, logits, weights) > 0
    assert first(guide.teacher) == first(resumed.teacher)
