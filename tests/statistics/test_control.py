"""The random control is a control: it does not repeat what the selection chose."""

import torch

from vpdr import Budget, Focus, Occasion
from vpdr.mechanisms import SeededNoise
from vpdr.rng import Streams


def test_the_control_draws_its_own_coordinates() -> None:
    scores, kept = torch.zeros(512, dtype=torch.float64), 103
    shared = []
    for t in range(50):
        chosen = [
            Focus(selection=name)
            .plan(Budget(1.0, 1e-5), 20, kept)
            .selection.choose(scores, kept, Occasion(noise=SeededNoise(Streams(0).draw("release", t=t))))
            .focus
            for name in ("laplace", "random")
        ]
        shared.append(float((chosen[0] & chosen[1]).sum()) / kept)
    assert abs(sum(shared) / 50 - kept / 512) < 0.03  # once it was 1: both ranked the same uniform draws
