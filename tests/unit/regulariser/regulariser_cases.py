"""A small head, a batch, and helpers for both."""

import torch
from torch import nn

from vpdr.regulariser import Regulariser

R = 5.0


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_head(seed: int = 0) -> nn.Module:
    head = nn.Sequential(
        nn.utils.skip_init(nn.Linear, 6, 8), nn.ReLU(), nn.Dropout(0.9), nn.utils.skip_init(nn.Linear, 8, 3)
    )
    source = rng(seed)
    for value in head.parameters():
        nn.init.normal_(value, generator=source)
    return head


def batch(b: int = 4, seed: int = 1):
    source = rng(seed)
    z = torch.randn(b, 6, generator=source).requires_grad_()
    return z, torch.randn(b, 3, generator=source).requires_grad_(), torch.ones(b)


def shift_parameters(head: nn.Module, by: float) -> None:
    with torch.no_grad():
        for value in head.parameters():
            value.add_(by)


def first_parameter(module: nn.Module) -> float:
    return next(module.parameters()).detach().flatten()[0].item()


def norms_after(regulariser: Regulariser, *norms: float) -> list[float]:
    return [regulariser.transform_features(torch.tensor([[n, 0.0, 0, 0, 0, 0]])).norm().item() for n in norms]
