"""The small training loop of the servers against torch."""

import pytest
import torch

from tests.unit.frameworks.framework_cases import rng
from vpdr.frameworks.training import AdamW, dropout_mask, shuffled_batches


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
