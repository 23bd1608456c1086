"""The public map into the space in which rapp releases, as a plan asks for it."""

from vpdr.engines.trunks import frozen_path, member_of
from vpdr.mechanisms.rapp import Geometry, release_dim
from vpdr.plan.plan import Plan
from vpdr.privacy import Budget
from vpdr.rng import Streams


def release_space(plan: Plan, streams: Streams) -> Geometry:
    """A subspace or an elliptical metric, the same for all clients.

    Guarantee: it is made of the plan and its seed alone. `metric = "projection"` draws the frozen projection
    a second time from its own stream, so neither weights nor samples are needed. Features that came from
    elsewhere (made-up ones) are released through it as soundly, but noise then fits them no better.
    """
    dim, chosen = plan.model.dim, plan.mechanism
    budget = Budget(plan.budget.epsilon, plan.budget.delta)
    kept = chosen.release_dim or release_dim(dim, budget, chosen.expected)
    space = Geometry.random(dim, kept, streams.draw("release-space"))
    if chosen.metric == "plain":
        return space
    path = frozen_path(plan, member_of(plan, 0), streams)
    bias = None if path.projection.bias is None else path.scale * path.projection.bias
    return Geometry.of_projection(path.scale * path.projection.weight, bias, within=space)
