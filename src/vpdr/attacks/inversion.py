"""Search for inputs whose features match given ones: many targets side by side, each on its own."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.attacks.spaces import Path, Space
from vpdr.checks import at_least, positive

_FIRST, _SECOND, _FLOOR = 0.9, 0.999, 1e-8  # Adam's usual constants


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """How long and how hard; the paper's values, and those that it leaves open."""

    steps: int = 10_000
    lr: float = 0.01
    smoothing: float = 1e-3  # weight of the total variation
    patience: int = 300
    tolerance: float = 1e-6
    grace: int = 100  # steps before anything may stop
    start: float = 0.1  # standard deviation of the first variables

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, patience=self.patience)
        positive(lr=self.lr)


@dataclass(frozen=True, slots=True)
class Found:
    """The best input of each target, its loss, and how many steps were taken."""

    inputs: Float[Tensor, "b *shape"]
    losses: Float[Tensor, " b"]
    steps: Int[Tensor, " b"]


def invert(
    path: Path,
    space: Space,
    targets: Float[Tensor, "b d"],
    starts: Float[Tensor, "b *shape"],
    search: Search,
) -> Found:
    """Minimise |φ(x) - p|² + smoothing · TV(x) for each target by Adam, and keep its best iterate.

    A target stops when its best loss has not fallen by more than the tolerance for `patience` steps. Adam
    works coordinate by coordinate, so that no target depends on the others of its batch.
    """
    state = _State(starts, targets)
    for step in range(1, search.steps + 1):
        variables = state.variables.requires_grad_(True)
        inputs = space.decode(variables)
        losses = (path(inputs) - state.targets).square().sum(1) + search.smoothing * space.roughness(inputs)
        (slopes,) = torch.autograd.grad(losses.sum(), variables)
        with torch.no_grad():
            state.look(losses, step, search)
            if not len(state.active):
                break
            state.move(slopes[state.kept], step, search)
    return Found(space.decode(state.best).detach(), state.losses, state.steps)


class _State:
    """The targets that are still searched for, and the best of all."""

    def __init__(self, starts: Float[Tensor, "b *shape"], targets: Float[Tensor, "b d"]) -> None:
        self.variables, self.targets = starts.clone(), targets
        self.first, self.second = torch.zeros_like(starts), torch.zeros_like(starts)
        self.active = torch.arange(len(starts), device=starts.device)
        self.kept = self.active
        self.best = starts.clone()
        self.losses = torch.full((len(starts),), torch.inf, device=starts.device)
        self.mark = self.losses.clone()  # the loss that must be undercut by more than the tolerance
        self.since = torch.zeros(len(starts), dtype=torch.int64, device=starts.device)
        self.steps = torch.zeros_like(self.since)

    def look(self, losses: Float[Tensor, " a"], step: int, search: Search) -> None:
        """Keep what is better, and let go of targets that have not moved for long."""
        rows = self.active
        self.variables = self.variables.detach()
        better = losses < self.losses[rows]
        self.losses[rows[better]] = losses[better]
        self.best[rows[better]] = self.variables[better]
        moved = losses < self.mark[rows] - search.tolerance
        self.mark[rows[moved]] = losses[moved]
        self.since[rows] = torch.where(moved, 0, self.since[rows] + 1)
        self.steps[rows] = step
        stays = (self.since[rows] < search.patience) | (step < search.grace)
        self.kept = stays.nonzero()[:, 0]
        if len(self.kept) < len(rows):
            self.active, self.targets = rows[self.kept], self.targets[self.kept]
            self.variables = self.variables[self.kept]
            self.first, self.second = self.first[self.kept], self.second[self.kept]

    def move(self, slopes: Float[Tensor, "a *shape"], step: int, search: Search) -> None:
        """One step of Adam."""
        self.first.lerp_(slopes, 1 - _FIRST)
        self.second.mul_(_SECOND).addcmul_(slopes, slopes, value=1 - _SECOND)
        scale = (self.second / (1 - _SECOND**step)).sqrt_().add_(_FLOOR)
        self.variables = self.variables - search.lr / (1 - _FIRST**step) * self.first / scale
