"""What releases that are added up need from the rest of a plan."""

from typing import TYPE_CHECKING

from vpdr.encoder import families
from vpdr.errors import InvalidInput
from vpdr.mechanisms import MECHANISMS
from vpdr.plan.combinations import HIDES_COUNTS, release_encoder, sharing
from vpdr.privacy import EncoderKind

if TYPE_CHECKING:
    from vpdr.plan.plan import Plan

IN_STAGES = {name for name, kind in MECHANISMS.items() if kind.facts.staged}


def check_fixed(plan: "Plan", encoder: EncoderKind) -> None:
    """Refuse to add up releases of features that change between rounds."""
    kind = plan.mechanism.kind
    if (kind in IN_STAGES or plan.mechanism.accumulate) and not encoder.fixed:
        raise InvalidInput(
            f"mechanism {kind} adds releases up, which needs an encoder that stays as it is, got {encoder}; "
            "set release.encoder=public"
        )


def check_accumulated(plan: "Plan") -> None:
    """Releases that are added up must be of the same features, and stages need rows that never change."""
    kind, staged = plan.mechanism.kind, plan.mechanism.kind in IN_STAGES
    if plan.mechanism.release_dim > plan.model.dim:
        raise InvalidInput(
            f"mechanism.release_dim must be at most model.dim = {plan.model.dim}, "
            f"got {plan.mechanism.release_dim}"
        )
    if not (staged or plan.mechanism.accumulate) or not sharing(plan):
        return
    check_fixed(plan, release_encoder(plan))
    if staged and plan.release.summariser not in HIDES_COUNTS:
        raise InvalidInput(
            f"mechanism {kind} releases class sums, got summariser {plan.release.summariser}; "
            "set release.summariser=sums"
        )
    if staged:
        _check_metric(plan)


def _check_metric(plan: "Plan") -> None:
    """One map is shared by all clients, so there must be one projection that it can be made of."""
    if plan.mechanism.metric == "plain" or not plan.model.family:
        return
    backbones = sorted({member.backbone for member in families()[plan.model.family].members})
    if len(backbones) > 1:
        raise InvalidInput(
            f"mechanism.metric={plan.mechanism.metric} needs one projection for all clients, family "
            f"{plan.model.family} has {', '.join(backbones)}; set mechanism.metric=plain"
        )
