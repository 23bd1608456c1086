"""Clipping on numbers worked by hand."""

import torch

from vpdr.mechanisms.base import clip


def test_clipping() -> None:
    clipped = clip(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), 1.0)
    torch.testing.assert_close(clipped, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))
