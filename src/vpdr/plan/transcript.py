"""What releases on a broadcast path need from the rest of a plan."""

from typing import TYPE_CHECKING

from vpdr.errors import InvalidInput
from vpdr.frameworks import FRAMEWORKS
from vpdr.plan.combinations import framework_of, release_encoder
from vpdr.privacy import EncoderKind

if TYPE_CHECKING:
    from vpdr.plan.plan import Plan


def check_transcript(plan: "Plan") -> None:
    """The framework must broadcast a path, and something must be released after it was heard."""
    if release_encoder(plan) is not EncoderKind.TRANSCRIPT:
        return
    if framework_of(plan, plan.framework.kind).encoder is not EncoderKind.TRANSCRIPT:
        able = " or ".join(kind for kind, make in FRAMEWORKS.items() if make().transcript() is not None)
        raise InvalidInput(
            f"release.encoder=transcript needs a framework that broadcasts a path ({able}), got "
            f"{plan.framework.kind}; set framework.kind={able}, or release.encoder=public"
        )
    if plan.releases < 2:
        raise InvalidInput(
            "release.encoder=transcript needs at least two releases, since the first comes before any path, "
            f"got {plan.releases}; raise run.rounds and release.count, or set release.encoder=public"
        )
