"""How a budget is shared between the releases and the training of their encoder."""

import dataclasses
import math

from vpdr.errors import InvalidInput
from vpdr.mechanisms import Igpp, Mechanism, Vpp
from vpdr.mechanisms.gradients import PrivateSteps
from vpdr.plan.plan import Plan
from vpdr.privacy import Adjacency


def shared_out(plan: Plan, mechanism: Mechanism, classes: int) -> tuple[Mechanism, PrivateSteps]:
    """The mechanism with a part of the noise budget that it was calibrated for, and training with the rest.

    Guarantee: precisions 1/σ² of Gaussian events add up under every accountant, and all planned events
    together have the precision that the mechanism alone had, so they cost what it would have cost.
    """
    if not isinstance(mechanism, Igpp | Vpp):
        raise InvalidInput(
            f"train.privacy={plan.train.privacy} shares a budget with igpp or vpp, got {plan.mechanism.kind}"
        )
    train, whole = plan.train, mechanism.noise_multiplier / math.sqrt(plan.releases)
    steps = plan.run.rounds * train.epochs
    training = PrivateSteps(
        clip_norm=train.gradient_clip,
        multiplier=whole * math.sqrt(steps / train.private_share),
        per_round=train.epochs,
        planned=steps,
        divisor=float(plan.mechanism.expected * classes or train.batch),
        adjacency=Adjacency(plan.budget.adjacency),
    )
    less = mechanism.noise_multiplier / math.sqrt(1 - train.private_share)
    return dataclasses.replace(mechanism, noise_multiplier=less), training
