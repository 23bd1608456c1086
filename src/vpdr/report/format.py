"""Every number and label of reports, tables and terminal output as text.

Missing values are a dash. Records and tables keep the raw numbers, so nothing here is parsed again.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from vpdr.records import PrivacyStatement
from vpdr.report.stats import ALL_CLASSES, FUSED, NEAREST_PROTOTYPE, OWN_CLASSES, ZERO_TOLERANCE, Interval, has_release

ToText = Callable[[float], str]

DASH = "—"
MINUS = "\N{MINUS SIGN}"
NOTHING_RELEASED = "nothing released"
UNNAMED_METHOD = "this plan"  # a run without methods to compare

PREDICTOR_LABELS = {
    "framework": "accuracy",
    "head": "head",
    "soft_clipped": "soft-clipped",
    "nearest_cosine": "nearest prototype",
    "fused": "fused",
}
METRIC_TITLES = {
    OWN_CLASSES: "own classes",
    ALL_CLASSES: "all classes",
    NEAREST_PROTOTYPE: "nearest prototype, all classes",
}
METRIC_SENTENCES = {
    OWN_CLASSES: "With the framework's own predictor, on own classes",
    ALL_CLASSES: "With the framework's own predictor, on all classes",
    NEAREST_PROTOTYPE: "With the nearest shared prototype, on all classes",
}
METRIC_PHRASES = {
    OWN_CLASSES: "on own classes",
    ALL_CLASSES: "on all classes",
    NEAREST_PROTOTYPE: "of the nearest shared prototype, on all classes,",
}
SHORT_METRIC_LABELS = {OWN_CLASSES: "own", ALL_CLASSES: "all", NEAREST_PROTOTYPE: "nearest", FUSED: "fused"}
ATTACK_TITLES = {"mia": "Membership inference", "fsh": "Reconstruction (feature-space hijacking)"}
ATTACK_METRIC_LABELS = {
    "auc": "ROC-AUC",
    "tpr_at_1fpr": "TPR at 1 % FPR",
    "tpr_at_1fpr_nearest": "TPR nearest 1 % FPR",
    "advantage": "Advantage",
    "f1": "F1",
    "cos": "Cosine to the released prototype",
    "cos_clean": "Cosine to the clean prototype",
    "cffd": "cFFD",
    "cffd_pooled": "cFFD, all classes pooled",
    "top1": "Top-1 hit",
}
DIGITS_BY_UNIT = {"%": 2, "ms": 2, "": 4, "ε": 4, "of R": 3}


def percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction in per cent: `67.5`."""
    return DASH if fraction is None or math.isnan(fraction) else f"{100 * fraction:.{digits}f}"


def mean_with_half_width(
    interval: Interval | None, mean_text: Callable[[float], str] = percent, half_text: Callable[[float], str] = percent
) -> str:
    """A mean, in per cent if not said otherwise, with half of its interval if it has one: `67.5 ± 14.8`."""
    if not interval:
        return DASH
    mean, low, high = mean_text(interval.mean), interval.low, interval.high
    return mean if low is None or high is None else f"{mean} ± {half_text((high - low) / 2)}"


def signed_points(fraction: float) -> str:
    """A difference in percentage points: `−4.2`."""
    return signed_one_decimal(100 * fraction)


def points_with_interval(interval: Interval | None) -> str:
    """A difference in percentage points with its interval: `−4.2 (−15.0 to +6.5)`."""
    return _with_bounds(interval, signed_points)


def _with_bounds(interval: Interval | None, text: ToText) -> str:
    if not interval:
        return DASH
    mean, low, high = text(interval.mean), interval.low, interval.high
    return mean if low is None or high is None else f"{mean} ({text(low)} to {text(high)})"


def signed_one_decimal(value: float) -> str:
    """One decimal with its sign; `0.0` has none."""
    text = f"{value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", MINUS)


def three_digits(value: float | None) -> str:
    """A number of any magnitude in three significant digits; rounding errors are 0."""
    if value is None or not math.isfinite(value):
        return DASH
    if abs(value) < ZERO_TOLERANCE:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def four_digits(value: float | None) -> str:
    """A number such as a spent ε in four significant digits."""
    return DASH if value is None else f"{value:.4g}"


def short_number(value: float | None) -> str:
    """A number as the user has set it, such as a budget: `0.5`, `8`."""
    return DASH if value is None else f"{value:g}"


def attack_metric(value: float | None) -> str:
    """A metric of an attack: three decimals, one for large values."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def number_in_unit(value: float | None, unit: str) -> str:
    """A number with the decimals of its unit; one decimal from 1000 on."""
    if value is None:
        return DASH
    digits = DIGITS_BY_UNIT.get(unit, 2) if abs(value) < 1000 else 1
    return f"{value:.{digits}f}".replace("-", MINUS)


def mean_in_unit(interval: Interval | None, unit: str) -> str:
    """A mean with half of its interval: `93.12 ± 1.20`."""
    in_unit = partial(number_in_unit, unit=unit)
    return mean_with_half_width(interval, in_unit, in_unit)


def signed_in_unit(value: float | None, unit: str) -> str:
    """A difference with its sign."""
    return ("+" if value is not None and value > 0 else "") + number_in_unit(value, unit)


def difference_in_unit(interval: Interval | None, unit: str) -> str:
    """A difference with its interval: `+0.4 (−0.2 to +1.0)`."""
    return _with_bounds(interval, partial(signed_in_unit, unit=unit))


def duration(seconds: float) -> str:
    """Seconds, minutes or hours: `3.2 s`, `1 min 1 s`, `2 h 1 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def count_noun(number: int, noun: str) -> str:
    """`1 round`, `2 rounds`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def range_noun(numbers: Sequence[int], noun: str) -> str:
    """`20 rounds`, or `10 to 20 rounds` where the numbers differ."""
    low, high = min(numbers), max(numbers)
    return count_noun(high, noun) if low == high else f"{low} to {count_noun(high, noun)}"


def join_and(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds as the command line takes them: `0..4`, `3` or `0,2,5`."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}..{seeds[-1]}"
    return ",".join(map(str, seeds))


def method_name(method: str) -> str:
    """The name of a method; a run without methods to compare has none."""
    return method or UNNAMED_METHOD


def level_label(privacy: PrivacyStatement) -> str:
    """The guarantee level of a privacy statement, or that nothing was released."""
    return privacy.level if has_release(privacy) else NOTHING_RELEASED


def markdown_row(*cells: str) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A Markdown table whose first `texts` columns are left-aligned and all others right-aligned."""
    marks = ["---" if index < texts else "---:" for index in range(len(headings))]
    return markdown_row(*headings) + markdown_row(*marks) + "".join(markdown_row(*cells) for cells in rows)
