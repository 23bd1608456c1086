"""Clipping on numbers worked by hand."""

import torch

from vpdr.mechanisms.base import clip, clip_groups


def test_clipping() -> None:
    clipped = clip(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), 1.0)
    torch.testing.assert_close(clipped, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_group_clipping() -> None:
    focus = torch.tensor([True, False, False])
    clipped = clip_groups(torch.tensor([[2.0, 3.0, 4.0], [0.5, 0.0, 0.0]]), focus, (1.0, 2.5))
    torch.testing.assert_close(clipped, torch.tensor([[1.0, 1.5, 2.0], [0.5, 0.0, 0.0]]))
