"""What the numbers say, in sentences: a difference is told only where its interval excludes zero."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vpdr.report.differences import (
    ALL,
    NEAREST,
    READINGS,
    difference,
    private,
    released,
    same_scopes,
    verdict,
)
from vpdr.report.numbers import listed, points, size

Summary = Mapping[str, Any]  # by setting, as made by summarise_runs
NO_DIFFERENCE = "no difference that the seeds can tell"
PREDICTORS = {"the framework's own predictor": True, "the nearest shared prototype": False}


@dataclass(frozen=True, slots=True)
class Finding:
    """One method against the baseline, on one reading in one setting."""

    method: str
    measured: Mapping[str, Any]
    verdict: int | None

    @property
    def text(self) -> str:
        """The method with its difference."""
        return f"{self.method} {points(self.measured)}"


def findings(setting: Mapping[str, Any], baseline: str | None, metric: str, *, secret: bool) -> list[Finding]:
    """Every method that released something, either under a budget (`secret`) or as it is."""
    found = []
    for method, summary in setting["methods"].items():
        measured = difference(setting, method, baseline, metric)
        shared = released(summary["privacy"])
        if measured and shared and private(summary["privacy"]) is secret:
            name = method if secret else f"“{method}”"  # a method may be called none
            found.append(Finding(name, measured, verdict(measured)))
    return found


def headline(summary: Summary, baseline: str | None) -> str:
    """How many comparisons of private methods came out better, worse or undecided, and who was better."""
    if baseline is None or not any(baseline in setting["methods"] for setting in summary.values()):
        return "No baseline was run, so that no differences are judged here."
    found = {name: _judged(summary, baseline, own=own) for name, own in PREDICTORS.items()}
    if not any(found.values()):
        return f"No private method was compared with {baseline}."
    if all(each.verdict is None for judged in found.values() for _, each in judged):
        return f"With one seed, differences to {baseline} cannot be told from chance: none is claimed."
    told = [_counts(name, judged) for name, judged in found.items() if judged]
    return (
        f"Private methods against {baseline}: {'; '.join(told)}. "
        "About one in twenty intervals excludes zero by chance alone."
    )


def _judged(summary: Summary, baseline: str, *, own: bool) -> list[tuple[str, Finding]]:
    """All comparisons of private methods, with their settings."""
    return [
        (name, each)
        for name, setting in summary.items()
        for metric in readings(setting)
        if (metric != NEAREST) is own
        for each in findings(setting, baseline, metric, secret=True)
    ]


def _counts(name: str, judged: list[tuple[str, Finding]]) -> str:
    """How often better, worse or neither, and who was better."""
    better = [
        f"{each.method} in {where}" if where else each.method for where, each in judged if each.verdict == 1
    ]
    worse = sum(each.verdict == -1 for _, each in judged)
    rest = len(judged) - len(better) - worse
    who = f" ({listed(list(dict.fromkeys(better)))})" if better else ""
    return (
        f"with {name}, {len(better)} of {len(judged)} comparisons came out better{who} and {worse} worse "
        f"with an interval that excludes zero; in {rest} there is {NO_DIFFERENCE}"
    )


def readings(setting: Mapping[str, Any]) -> dict[str, str]:
    """What is compared; own and all classes are told once where they are the same."""
    if not same_scopes(setting):
        return READINGS
    return {ALL: f"{READINGS[ALL]} (which every client holds here)", NEAREST: READINGS[NEAREST]}


def sentences(setting: Mapping[str, Any], baseline: str | None) -> Iterator[str]:
    """The findings of one setting."""
    for metric, name in readings(setting).items():
        told = _told(findings(setting, baseline, metric, secret=True), baseline)
        open_ = _told(findings(setting, baseline, metric, secret=False), baseline)
        parts = [told] if told else []
        parts += [f"Without privacy: {open_}"] if open_ else []
        if parts:
            yield f"{name}: {'. '.join(parts)}."
    yield from _noise(setting)
    yield from _selection(setting)


def _told(found: list[Finding], baseline: str | None) -> str:
    """Higher, lower, and the rest."""
    if found and all(each.verdict is None for each in found):
        return "one seed, so nothing can be told from chance"
    groups = {
        f"higher than {baseline} (points)": [each.text for each in found if each.verdict == 1],
        f"lower than {baseline} (points)": [each.text for each in found if each.verdict == -1],
        NO_DIFFERENCE: [each.method for each in found if each.verdict in (0, None)],
    }
    return "; ".join(f"{name}: {listed(members)}" for name, members in groups.items() if members)


def _noise(setting: Mapping[str, Any]) -> Iterator[str]:
    ratios = {
        method: summary["metrics"]["noise_to_signal"]["mean"]
        for method, summary in setting["methods"].items()
        if private(summary["privacy"]) and "noise_to_signal" in summary["metrics"]
    }
    louder = [f"{method} ({size(ratio)})" for method, ratio in ratios.items() if ratio > 1]
    if louder:
        yield f"The noise is stronger than the released signal (ratio above 1) for {listed(louder)}."


def _selection(setting: Mapping[str, Any]) -> Iterator[str]:
    """Whether the selected dimensions are the true ones more often than a coin's would be."""
    groups: dict[str, list[str]] = {"more often than": [], "less often than": [], "about as often as": []}
    for method, summary in setting["methods"].items():
        overlap, chance = (summary["metrics"].get(name) for name in ("overlap", "chance"))
        if overlap and chance and overlap["low"] is not None:
            above, below = overlap["low"] > chance["mean"], overlap["high"] < chance["mean"]
            words = "more often than" if above else "less often than" if below else "about as often as"
            groups[words].append(f"{method} ({overlap['mean']:.2f}, chance {chance['mean']:.2f})")
    told = [f"{words} chance for {listed(members)}" for words, members in groups.items() if members]
    if told:
        yield f"The selected dimensions are the true ones {'; '.join(told)}."


def compared(summary: Summary, baseline: str | None, seeds: int, records: Sequence[Mapping[str, Any]]) -> str:
    """What was run."""
    methods = list(dict.fromkeys(method for setting in summary.values() for method in setting["methods"]))
    runs = sum(len(each["seeds"]) for setting in summary.values() for each in setting["methods"].values())
    rounds = _range([len(record["rounds"]) for record in records], "round")
    clients = _range([len(record["clients"]) for record in records], "client")
    text = (
        f"{_count(len(methods), 'method')} in {_count(len(summary), 'setting')} with {_count(seeds, 'seed')}"
        f": {_count(runs, 'run')} of {rounds} with {clients}."
    )
    if baseline is None:
        return text
    return (
        f"{text} Each method is compared with {baseline}, seed by seed; a difference counts where its 95 % "
        "interval excludes zero. The nearest shared prototype, which a method without sharing does not "
        f"have, is compared with the predictions of {baseline} on all classes."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _range(numbers: Sequence[int], noun: str) -> str:
    low, high = min(numbers), max(numbers)
    return _count(high, noun) if low == high else f"{low} to {_count(high, noun)}"
