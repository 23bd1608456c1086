"""What every framework must do on the client: a registered one is tested without any change here."""

import dataclasses

import pytest
import torch

from tests.contracts.conftest import EVERY_FRAMEWORK, HAS_GLOBAL_PROTOTYPES
from tests.unit.frameworks.framework_cases import (
    CLASSES,
    DIM,
    ROUNDS,
    build,
    gradient,
    own_means,
    rng,
    serve,
    step,
    total,
    upload,
    uploads_of,
)
from vpdr.frameworks import PredictionInputs
from vpdr.types import TrainBatch


@EVERY_FRAMEWORK
@pytest.mark.parametrize("kind", ROUNDS)
def test_losses_are_finite_scalars_with_a_gradient(name, kind):
    framework, batch = build(name), step(0, 1, 2, 3, 3)
    losses = framework.losses(batch, serve(framework, uploads_of(kind)))
    for value in losses.values():
        assert value.shape == ()
        assert value.isfinite()
    loss = sum(losses.values())
    assert loss.requires_grad
    assert torch.isfinite(torch.from_numpy(gradient(loss, batch))).all()


@EVERY_FRAMEWORK
def test_one_sample_is_enough(name):
    framework = build(name)
    assert total(framework, step(1), serve(framework, uploads_of("classes are missing"))).isfinite()


@EVERY_FRAMEWORK
@pytest.mark.parametrize("kind", ["zero uploads", "only empty uploads"])
def test_without_uploads_only_the_task_is_left(name, kind):
    framework, batch = build(name), step(0, 1, 2)
    losses = framework.losses(batch, serve(framework, uploads_of(kind)))
    assert all(value == 0 for term, value in losses.items() if term != "task")
    assert ("task" in losses) == (name != "fedpcl")


@pytest.mark.parametrize("name", HAS_GLOBAL_PROTOTYPES)
def test_a_sample_of_a_missing_class_has_no_gradient(name):
    framework, batch = build(name), step(2, 0)
    losses = framework.losses(batch, serve(framework, uploads_of("class 2 is missing")))
    gradients = gradient(sum(value for term, value in losses.items() if term != "task"), batch)
    assert (gradients[0] == 0).all()
    assert (gradients[1] != 0).any()


@EVERY_FRAMEWORK
def test_rows_of_weight_zero_change_nothing(name):
    framework, batch = build(name), step(0, 1, 3)
    broadcast = serve(framework, uploads_of("classes are missing"))
    padding = step(2, 0, seed=9)
    padded = TrainBatch(
        *(torch.cat([getattr(batch, part), getattr(padding, part)]) for part in ("features", "logits", "labels")),
        torch.cat([batch.frozen_features, padding.frozen_features]),
        torch.tensor([1.0, 1, 1, 0, 0]),
    )
    plain, filled = framework.losses(batch, broadcast), framework.losses(padded, broadcast)
    for term in plain:
        torch.testing.assert_close(plain[term], filled[term])
    gradients = torch.autograd.grad(sum(filled.values()), (batch.features, padding.features), retain_graph=True)
    torch.testing.assert_close(torch.from_numpy(gradient(sum(plain.values()), batch)), gradients[0])
    assert (gradients[1] == 0).all()


@EVERY_FRAMEWORK
def test_a_batch_of_padding_only_is_zero(name):
    framework, batch = build(name), step(0, 1)
    empty = dataclasses.replace(batch, weights=torch.zeros(2))
    assert total(framework, empty, serve(framework, [upload(0, 1)])) == 0


@EVERY_FRAMEWORK
def test_losses_leave_their_inputs_alone(name):
    framework, batch = build(name), step(0, 1, 3)
    broadcast = serve(framework, uploads_of("classes are missing"))
    packed = {key: value.clone() for key, value in framework.pack(broadcast).items()}
    before = [getattr(batch, field.name).detach().clone() for field in dataclasses.fields(batch)]
    total(framework, batch, broadcast).backward()
    assert all(torch.equal(value, packed[key]) for key, value in framework.pack(broadcast).items())
    assert not any(value.requires_grad for value in framework.pack(broadcast).values())
    after = [getattr(batch, field.name).detach() for field in dataclasses.fields(batch)]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


@EVERY_FRAMEWORK
def test_losses_work_for_many_clients_at_once(name):
    framework = build(name)
    broadcast = serve(framework, uploads_of("classes are missing"))
    steps = [step(0, 1, 2, seed=s) for s in (3, 4)]
    parts = [torch.stack([getattr(s, f.name) for s in steps]) for f in dataclasses.fields(TrainBatch)]
    stacked = torch.func.vmap(lambda *row: total(framework, TrainBatch(*row), broadcast))(*parts)
    torch.testing.assert_close(stacked, torch.stack([total(framework, s, broadcast) for s in steps]))


@EVERY_FRAMEWORK
def test_predictions_are_labels(name):
    framework = build(name)
    inputs = PredictionInputs(
        torch.randn(5, DIM, generator=rng()), torch.randn(5, CLASSES, generator=rng(1)), own_means(1, 3)
    )
    for kind in ROUNDS:
        labels = framework.predict(inputs, serve(framework, uploads_of(kind)))
        assert labels.shape == (5,)
        if name != "fedpcl":
            assert torch.equal(labels, inputs.logits.argmax(dim=1))


@EVERY_FRAMEWORK
@pytest.mark.parametrize("kind", ROUNDS)
def test_scores_have_a_column_for_each_class(name, kind):
    """By the client's own model, and by one that was broadcast: by MPFT only."""
    framework, features = build(name), torch.randn(3, DIM, generator=rng())
    logits = torch.randn(3, CLASSES, generator=rng(1))
    for own in (own_means(0, 2), own_means()):
        scores = framework.personal_logits(PredictionInputs(features, logits, own))
        assert scores.shape == logits.shape
        assert bool(torch.isfinite(scores.softmax(dim=1)).all())
    from_broadcast = framework.broadcast_logits(features, serve(framework, uploads_of(kind)))
    assert from_broadcast is None or (
        from_broadcast.shape == logits.shape and bool(torch.isfinite(from_broadcast).all())
    )
    assert from_broadcast is None or name not in HAS_GLOBAL_PROTOTYPES


def test_fedpcl_does_not_use_its_untrained_head():
    features, own = torch.eye(2, DIM), own_means(1, 3)
    confident = torch.full((2, CLASSES), 1e3)
    scores = build("fedpcl").personal_logits(PredictionInputs(features, confident, own))
    cosines = torch.nn.functional.cosine_similarity(features[:, None], own.vectors[None], dim=2)
    torch.testing.assert_close(scores[:, [1, 3]], cosines / 0.07)
    assert bool((scores[:, [0, 2]] == -torch.inf).all())
