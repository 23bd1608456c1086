"""The random control is a control: it does not repeat what the selection chose."""

import torch

from vpdr import Budget, ReleaseContext, SelectionConfig
from vpdr.mechanisms import SeededNoise
from vpdr.rng import Streams


def test_the_control_draws_its_own_coordinates() -> None:
    scores, count = torch.zeros(512, dtype=torch.float64), 103
    shared = []
    for t in range(50):
        masks = [
            SelectionConfig(selection=name)
            .calibrate(Budget(1.0, 1e-5), 20, count)
            .choose(scores, count, ReleaseContext(noise=SeededNoise(Streams(0).generator("release", round=t))))
            .mask
            for name in ("laplace", "random")
        ]
        shared.append(float((masks[0] & masks[1]).sum()) / count)
    assert abs(sum(shared) / 50 - count / 512) < 0.03  # once it was 1: both ranked the same uniform draws
