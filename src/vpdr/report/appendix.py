"""The end of a report: plans, versions, how to run it again, and a glossary."""

from collections.abc import Mapping, Sequence
from typing import Any

from vpdr.records.toml_text import toml_text
from vpdr.report.markup import Html, folded, pairs, section, tag
from vpdr.report.numbers import duration
from vpdr.report.series import Record, Records

GLOSSARY = {
    "Own classes": "test samples of the classes that a client has trained on, the paper's protocol.",
    "All classes": "the whole test set of a client, with the classes that it has never seen.",
    "Nearest shared prototype": (
        "a sample gets the class of the shared prototype with the largest cosine similarity. It shows what "
        "the exchanged prototypes themselves are worth, without any client's own classifier."
    ),
    "Noise-to-signal": (
        "expected norm of the noise over the norm of what is released: the median over prototypes, then the "
        "mean over clients and rounds. Above 1 the noise is the larger part. It is infinite where most "
        "released vectors belong to classes that the client lacks; such releases are counted and left out."
    ),
    "relMSE": (
        "squared error of the released prototypes over the spread between classes. 0 is perfect; 1 is what "
        "one constant vector for all classes would score; far above 1 is noise."
    ),
    "Overlap and chance": (
        "share of the selected dimensions that are truly the most discriminative, beside the share that a "
        "random choice would hit."
    ),
    "Interval": "95 % t-interval over seeds; for a difference, over the differences at equal seeds.",
    "ε, δ": "what all releases of a client together may reveal about one sample; smaller is stricter.",
}


def flat(plan: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as `section.key`."""
    found: dict[str, Any] = {}
    for key, value in plan.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def changes(plan: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """The settings in which a plan differs from any of the others."""
    mine, rest = flat(plan), [flat(other) for other in others]
    told = [
        f"{key} = {value}"
        for key, value in mine.items()
        if key != "run.seed" and any(other.get(key) != value for other in rest)
    ]
    return ", ".join(told)


def plans_section(settings: Mapping[str, Records], baseline: str | None) -> Html:
    """The resolved plan of every arm, with what sets it apart from the baseline's."""
    parts = []
    for setting, methods in settings.items():
        reference = [records[0]["plan"] for method, records in methods.items() if method == baseline]
        for method, records in methods.items():
            plan = records[0]["plan"]
            apart = changes(plan, reference)
            note = tag("p", f"Differs from {baseline}: {apart}.", class_="small") if apart else Html("")
            title = " / ".join(part for part in (setting, method) if part) or "this plan"
            parts.append(folded(title, note, tag("pre", toml_text(plan))))
    return section(
        "plans", "Plans", tag("p", "Every setting, defaults included, with the first seed."), *parts
    )


def rerun_section(command: str, records: Sequence[Record]) -> Html:
    """How to get the same numbers again, and what computed these."""
    total = sum(record["wall_seconds"] for record in records)
    versions: dict[str, list[str]] = {}
    for record in records:
        for name, version in record["versions"].items():
            known = versions.setdefault(name, [])
            known += [version] if version not in known else []
    facts = {name: " and ".join(found) for name, found in versions.items()}
    return section(
        "rerun",
        "Run it again",
        tag("pre", tag("code", command)),
        pairs(
            {"Computing time": f"{duration(total)} in {len(records)} run{'s'[: len(records) > 1]}", **facts}
        ),
    )


def glossary_section() -> Html:
    """The words of the tables."""
    return section("glossary", "Glossary", pairs(GLOSSARY))
