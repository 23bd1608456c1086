"""From a plan to the inputs that a reconstruction attack searches."""

from vpdr.attacks.folding import FoldedLite0
from vpdr.attacks.spaces import EmbeddingSpace, PictureSpace, Space
from vpdr.encoder import POOLED_DIM, load_lite0, make_path
from vpdr.plan.plan import Plan
from vpdr.rng import Streams

PICTURES = ("quickstart",)  # benchmarks whose samples are pictures


def space_of(plan: Plan, streams: Streams) -> Space:
    """Pictures where the samples are pictures; otherwise the public features."""
    if plan.benchmark.kind not in PICTURES:
        return EmbeddingSpace(plan.model.dim)
    model = plan.model
    path = make_path(
        model.projection,
        POOLED_DIM,
        model.dim,
        rng=streams.draw("projection"),
        scale=model.projection_scale,
    )
    return PictureSpace(plan.benchmark.pixels, FoldedLite0(load_lite0()), path.projection, path.scale)
