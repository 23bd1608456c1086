"""The loss terms of clients, and the small training loop of the servers against torch."""

import pytest
import torch

from tests.unit.frameworks.framework_cases import DIM, rng, serve, step, upload
from vpdr.frameworks import FedPcl, FedPlvm, Fpl
from vpdr.frameworks.base import AdamW, dropout_mask, shuffled_batches
from vpdr.regulariser import Dcr
from vpdr.types import TrainBatch


def test_batches_hold_every_row_once():
    assert sorted(torch.cat(list(shuffled_batches(10, 4, rng()))).tolist()) == list(range(10))
    assert [len(rows) for rows in shuffled_batches(10, 4, rng())] == [4, 4, 2]


def test_dropout_keeps_the_mean():
    mask = dropout_mask((200, 200), 0.1, rng())
    assert mask.unique().tolist() == pytest.approx([0, 1 / 0.9])
    assert mask.mean().item() == pytest.approx(1, abs=0.01)


def test_adamw_equals_torch():
    source = rng(3)
    start = {"a": torch.randn(3, 4, generator=source), "b": torch.randn(4, generator=source)}
    ours = {key: value.clone().requires_grad_() for key, value in start.items()}
    theirs = {key: value.clone().requires_grad_() for key, value in start.items()}
    rule = AdamW(lr=0.01, weight_decay=0.1)
    oracle = torch.optim.AdamW(theirs.values(), lr=0.01, weight_decay=0.1)
    state = rule.init_state(start)
    for _ in range(20):
        x = torch.randn(5, 3, generator=source)
        state = rule.step(ours, (x @ ours["a"] + ours["b"]).square().mean(), state)
        oracle.zero_grad()
        (x @ theirs["a"] + theirs["b"]).square().mean().backward()
        oracle.step()
    for key in start:
        torch.testing.assert_close(ours[key], theirs[key])


@pytest.mark.parametrize(
    ("framework", "terms"),
    [(FedPcl(), {"global", "local"}), (Fpl(), {"contrast"}), (FedPlvm(), {"contrast", "correct"})],
)
def test_soft_clipping_cannot_change_a_loss_of_cosines(framework, terms):
    batch, regulariser = step(0, 1, 3), Dcr(clip_norm=2.0).make_regulariser(torch.nn.Linear(DIM, 4))
    broadcast = serve(framework, [upload(0, 1, 3, seed=1), upload(0, 3, seed=2)])
    clipped = TrainBatch(
        regulariser.transform_features(batch.features), batch.logits, batch.labels, batch.frozen_features, batch.weights
    )
    raw, after = framework.losses(batch, broadcast), framework.losses(clipped, broadcast)
    for term in terms:
        torch.testing.assert_close(raw[term], after[term])
