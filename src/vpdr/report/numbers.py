"""Numbers as people read them: per cent, points, intervals, and a dash for what is missing."""

import math
from collections.abc import Mapping
from typing import Any

DASH = "—"
MINUS = "\N{MINUS SIGN}"
Interval = Mapping[str, Any]  # mean, low, high, std and values, as made by summary.interval


def percent(measured: Interval | None) -> str:
    """A mean in per cent with half of its interval: `67.5 ± 14.8`."""
    if not measured:
        return DASH
    mean = f"{100 * measured['mean']:.1f}"
    half = half_width(measured)
    return mean if half is None else f"{mean} ± {100 * half:.1f}"


def half_width(measured: Interval) -> float | None:
    """Half of an interval; a single value has none."""
    low, high = measured["low"], measured["high"]
    return None if low is None or high is None else float(high - low) / 2


def points(measured: Interval | None) -> str:
    """A difference in percentage points with its interval: `−4.2 (−15.0 to +6.5)`."""
    if not measured:
        return DASH
    mean = signed(100 * measured["mean"])
    if measured["low"] is None:
        return mean
    return f"{mean} ({signed(100 * measured['low'])} to {signed(100 * measured['high'])})"


def plus_minus(measured: Interval | None) -> str:
    """The same with half of its interval, which is shorter: `−4.2 ± 10.8`."""
    if not measured:
        return DASH
    mean, half = signed(100 * measured["mean"]), half_width(measured)
    return mean if half is None else f"{mean} ± {100 * half:.1f}"


def signed(value: float) -> str:
    """One decimal with its sign, `0.0` without one."""
    text = f"{value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", MINUS)


def size(value: float | None) -> str:
    """A positive number of any magnitude in three digits; rounding dust is 0."""
    if value is None or not math.isfinite(value):
        return DASH
    if abs(value) < 1e-9:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def listed(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def seeds_text(seeds: list[int]) -> str:
    """Seeds as the command line takes them: a range where they are one."""
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}..{seeds[-1]}"
    return ",".join(map(str, seeds))
