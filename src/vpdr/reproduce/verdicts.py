"""Does a number agree with the paper's? One rule, written on every page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AGREES, IN_SIGN, DIFFERS = "agrees", "agrees in sign", "does not agree"
NOT_RUN, NOTHING_PRINTED = "not run", "no number in the paper"
NOT_JUDGED = "not judged (smoke)"  # a number that was run, but small
RULE = (
    "agrees: ours is within one standard deviation over seeds of the paper's number, or within {tolerance}; "
    "agrees in sign: it is not, but the difference to {base} (for {base} itself: that of {headline}) has the "
    "paper's sign, and the verdict says whether its 95 % interval over paired seeds excludes zero; "
    "does not agree: neither"
)


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference between two methods: ours with its interval, and the paper's."""

    ours: Mapping[str, Any]
    paper: float


def verdict(ours: Mapping[str, Any], paper: float | None, tolerance: float, contrast: Contrast | None) -> str:
    """Ours (an interval over seeds) against the printed number, and their contrasts where they differ."""
    if paper is None:
        return NOTHING_PRINTED
    gap, std = abs(ours["mean"] - paper), ours["std"]
    if std is not None and gap <= std:
        return f"{AGREES} (within 1 std over seeds)"
    if gap <= tolerance:
        return f"{AGREES} (within {tolerance:g})"
    if contrast is not None and same_sign(contrast):
        return f"{IN_SIGN} ({zero_words(contrast.ours)})"
    return DIFFERS


def contrast_verdict(contrast: Contrast | None) -> str:
    """A difference against the paper's."""
    if contrast is None:
        return NOTHING_PRINTED
    return f"{IN_SIGN if same_sign(contrast) else DIFFERS} ({zero_words(contrast.ours)})"


def same_sign(contrast: Contrast) -> bool:
    """Whether both point the same way; no difference has no sign."""
    return bool(contrast.ours["mean"] * contrast.paper > 0)


def zero_words(ours: Mapping[str, Any]) -> str:
    """Whether an interval tells its difference from nothing."""
    low, high = ours["low"], ours["high"]
    if low is None or high is None:
        return "one seed: no interval"
    return "interval excludes zero" if low > 0 or high < 0 else "interval includes zero"


def not_run(why: str) -> str:
    """The verdict of a row without a number."""
    return f"{NOT_RUN} ({why})"
