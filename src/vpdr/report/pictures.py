"""The figures of a page with their captions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vpdr.report.accuracy_figures import clients, one_run, rounds, standings
from vpdr.report.differences import ALL, NEAREST, OWN, same_scopes
from vpdr.report.figures import inline_svg
from vpdr.report.markup import Html, joined, picture
from vpdr.report.palette import Looks
from vpdr.report.release_figures import budgets, noise, spent
from vpdr.report.series import Record, Records, learning, noise_ratios

if TYPE_CHECKING:
    from vpdr.report.figures import Figure

READ = {
    OWN: "on own classes",
    ALL: "on all classes",
    NEAREST: "of the nearest shared prototype, on all classes,",
}


def accuracy_pictures(
    summary: Mapping[str, Any], runs: Records, baseline: str | None, styles: Looks, key: str
) -> list[Html]:
    """Final standings, accuracy by round, accuracy by client."""
    one, held = same_scopes(summary), baseline in runs
    line = f"{baseline} with its own predictor"
    caption = "Final accuracy: mean and 95 % interval over seeds; small dots are seeds"
    drawing = standings(summary, baseline, styles)
    shown = [_picture(drawing, f"{key}-standings", f"{caption}{f', the dashed line is {line}' * held}.")]
    for reading, words in READ.items():
        if _measured(runs, reading) and not (one and reading == OWN):
            caption = f"Accuracy {words} after each round, mean over clients. Thin lines are seeds"
            drawing = rounds(runs, reading, baseline, styles)
            name = f"{key}-{reading.replace('.', '-')}"
            shown.append(_picture(drawing, name, f"{caption}{f', the dotted line is {line}' * held}."))
    caption = "Final accuracy of each client by the framework's own predictor, mean over seeds."
    drawing = clients(runs, ["all"] if one else ["own", "all"])
    return [*shown, _picture(drawing, f"{key}-clients", caption)]


def run_pictures(record: Record) -> list[Html]:
    """Accuracy of a single run."""
    if not learning(record, ALL).rounds:
        return []
    caption = "Accuracy after each round; the thick line is the mean over clients."
    return [_picture(one_run(record), "rounds", caption)]


def noise_pictures(runs: Records, styles: Looks, key: str) -> list[Html]:
    """Noise-to-signal, where anything was released."""
    if not any(noise_ratios(records).releases for records in runs.values()):
        return []
    dots = "a dot for each client and seed (mean over rounds), a bar for the mean"
    caption = f"Noise-to-signal ratio of the releases: {dots}. Dashed: noise as strong as the signal."
    return [_picture(noise(runs, styles), f"{key}-noise", caption)]


def budget_pictures(settings: Mapping[str, Records], styles: Looks) -> Html:
    """How the budgets were spent; once for settings that spent alike."""
    found: dict[str, tuple[Any, list[str]]] = {}
    for setting, runs in settings.items():
        curves = spent(runs)
        found.setdefault(repr(curves), (curves, []))[1].append(setting)
    shown = []
    for index, (curves, where) in enumerate(found.values()):
        if curves:
            caption = "ε spent by the client that spent most, against the budget (dashed)"
            caption += "." if len(found) == 1 else f", in {', '.join(where)}."
            shown.append(_picture(budgets(curves, styles), f"budget-{index}", caption))
    return joined(shown)


def _measured(runs: Records, reading: str) -> bool:
    return any(learning(record, reading).rounds for records in runs.values() for record in records)


def _picture(drawing: "Figure", name: str, caption: str) -> Html:
    return picture(inline_svg(drawing, name, caption), caption)
