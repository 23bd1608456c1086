"""How sure what was shared may be of a sample."""

import torch

from vpdr.client.shared_guess import class_distances, fitted_width
from vpdr.rng import Streams
from vpdr.types import Prototypes


def test_noisy_anchors_leave_the_decision_to_the_head() -> None:
    """The width of anchors that say nothing is large, so that they prefer no class."""
    rng = Streams(2).draw("x")
    features, labels = torch.randn(300, 16, generator=rng), torch.arange(300) % 3
    clear = Prototypes(torch.eye(3, 16) * 8, torch.arange(3))
    vague = Prototypes(torch.randn(3, 16, generator=rng) * 8, torch.arange(3))
    shifted = features + clear.vectors[labels]
    widths = [fitted_width(class_distances(shifted, known, 3), labels) for known in (clear, vague)]
    sure, unsure = (
        (-class_distances(shifted, known, 3) / width).softmax(1).max(1).values.mean()
        for known, width in zip((clear, vague), widths, strict=True)
    )
    assert sure > 0.95
    assert unsure < 0.5


def test_distances_are_to_the_nearest_anchor_of_a_class() -> None:
    anchors = Prototypes(torch.tensor([[0.0], [4.0], [9.0]]), torch.tensor([0, 0, 2]))
    apart = class_distances(torch.tensor([[3.0]]), anchors, 3)
    assert apart.tolist() == [[1.0, 1e200, 36.0]]


def test_a_class_without_an_anchor_has_no_probability() -> None:
    anchors = Prototypes(torch.tensor([[0.0], [9.0]]), torch.tensor([0, 2]))
    apart = class_distances(torch.tensor([[3.0], [float("nan")]]), anchors, 3)
    guess = (-apart / 1e-12).softmax(dim=1)
    assert guess[0].tolist() == [1.0, 0.0, 0.0]
    assert bool(torch.isfinite(guess).all())
