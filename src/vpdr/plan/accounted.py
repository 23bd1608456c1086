"""What training with privacy needs from the rest of a plan."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vpdr.encoder import PLACEMENTS, PROJECTIONS
from vpdr.errors import InvalidInput
from vpdr.plan.combinations import (
    NOT_PRIVATE,
    WITHOUT_SETTINGS,
    expected_level,
    framework_of,
    release_encoder,
    sharing,
)
from vpdr.privacy import EncoderKind, Level

if TYPE_CHECKING:
    from vpdr.plan.plan import Plan


def check_accounted(plan: "Plan") -> None:
    """Refuse what would let anything but noisy sums reach the encoder, and what nobody would profit from."""
    if not plan.train.private:
        return
    for wrong, reason in _faults(plan):
        if wrong:
            raise InvalidInput(f"train.privacy={plan.train.privacy} {reason}")


def _faults(plan: "Plan") -> Iterator[tuple[bool, str]]:
    model = plan.model
    yield (
        not sharing(plan) or release_encoder(plan) is not EncoderKind.ACCOUNTED,
        "spends budget on an encoder from which nothing is released; set release.encoder=personal and a "
        "framework that uploads, or train.privacy=none",
    )
    yield (
        plan.mechanism.kind in NOT_PRIVATE or expected_level(plan) is Level.NONE,
        "is of no use beside a release that is not private; set mechanism.kind=igpp",
    )
    yield (
        not framework_of(plan, plan.framework.kind).by_sample,
        f"needs a loss of one sample each, and framework {plan.framework.kind} does not say that it has one; "
        "choose another framework",
    )
    yield (
        plan.regulariser.kind not in WITHOUT_SETTINGS,
        f"cannot use regulariser {plan.regulariser.kind}, whose teacher is trained without privacy; set "
        "regulariser.kind=plain",
    )
    yield (
        PLACEMENTS[model.adapters] is not None or PROJECTIONS[model.projection].trained,
        "trains one adapter after the pooled feature; set model.adapters=last and a frozen projection",
    )
