"""What each method's guarantee covers, as its record states it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vpdr.privacy.terms import Level, Noise, Purpose
from vpdr.report.differences import private, released
from vpdr.report.markup import Html, bullets, folded, grid, joined, pairs, section, tag
from vpdr.report.numbers import DASH
from vpdr.report.series import Record, Records

NOTHING = "nothing released"
LEVELS: dict[str, str] = {
    Level.PROVED: "holds end to end for the stated adjacency.",
    Level.CONDITIONAL: "holds only if the personal encoder is taken as fixed, as if not trained on the data.",
    Level.AS_PUBLISHED: "the claim of the paper; the sensitivity behind it is not a bound.",
    Level.NONE: "the prototypes went out as they were; no finite ε describes them.",
    NOTHING: "no client sent anything, so that there is nothing to protect.",
}
SEEDED = (
    "from the seed: whoever knows it can repeat the noise, so that this is a simulation and not a private run"
)
SYSTEM = "from the operating system: nobody can repeat it"


def level_of(privacy: Mapping[str, Any]) -> str:
    """The level in the words of the tables."""
    return str(privacy["level"]) if released(privacy) else NOTHING


def statements(settings: Mapping[str, Records]) -> dict[str, Mapping[str, Any]]:
    """The weakest statement of each method over its seeds; settings apart only where they differ."""
    found: dict[str, dict[str, tuple[Mapping[str, Any], list[str]]]] = {}
    for setting, methods in settings.items():
        for method, records in methods.items():
            privacy = max((record["privacy"] for record in records), key=_spent)
            key = json.dumps({**privacy, "epsilon_spent": f"{_spent(privacy):.4g}"}, sort_keys=True)
            found.setdefault(method, {}).setdefault(key, (privacy, []))[1].append(setting)
    return {
        (method or "this plan") + (f" ({', '.join(where)})" if len(groups) > 1 else ""): privacy
        for method, groups in found.items()
        for privacy, where in groups.values()
    }


def _spent(privacy: Mapping[str, Any]) -> float:
    return float("inf") if privacy["epsilon_spent"] is None else float(privacy["epsilon_spent"])


def guarantee_section(settings: Mapping[str, Records], *content: str) -> Html:
    """All statements, the meaning of their levels, and what none of them covers."""
    found = statements(settings)
    levels = {level_of(privacy) for privacy in found.values()}
    rows = [(name, level_of(privacy), privacy["sentence"]) for name, privacy in found.items()]
    return section(
        "guarantee",
        "What the guarantee covers",
        simulation_note(list(found.values())),
        grid(("Method", "Guarantee", "Statement"), rows, class_="text"),
        tag("h3", "How much a guarantee is worth"),
        pairs({level: meaning for level, meaning in LEVELS.items() if level in levels}),
        *content,
        tag("h3", "What is not covered"),
        bullets(caveats(found)),
        tag("h3", "All terms"),
        *(folded(f"{name}: {level_of(privacy)}", terms(privacy)) for name, privacy in found.items()),
    )


def caveats(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Every caveat once, with the methods that it concerns."""
    concerned: dict[str, list[str]] = {}
    for name, privacy in found.items():
        for caveat in privacy["not_covered"]:
            concerned.setdefault(caveat, []).append(name)
    every = len(found)
    return [
        caveat if len(names) == every else f"{caveat} ({', '.join(names)})"
        for caveat, names in concerned.items()
    ]


def simulation_note(found: Sequence[Mapping[str, Any]]) -> Html:
    """A warning where noise could be repeated."""
    if not any(privacy["noise"] == Noise.SEEDED and private(privacy) for privacy in found):
        return Html("")
    return tag(
        "p",
        "The noise came from a seed, so that these runs can be repeated. They are simulations, and not ",
        "private: the levels say what the releases would be worth with secret noise.",
        class_="note",
    )


def terms(privacy: Mapping[str, Any]) -> Html:
    """Every field of one statement."""
    spent = privacy["epsilon_spent"]
    releases = ", ".join(f"{client} {count}" for client, count in privacy["releases"].items())
    steps = ", ".join(f"{client} {count}" for client, count in privacy.get("training_steps", {}).items())
    events = ", ".join(f"{count} {kind}" for kind, count in privacy["events"].items())
    level = level_of(privacy)
    return pairs(
        {
            "Statement": privacy["sentence"],
            "Level": f"{level}: {LEVELS.get(level, '')}",
            "Unit": privacy["unit"],
            "Adjacency": privacy["adjacency"],
            "Encoder": privacy["encoder"],
            "Class counts": privacy["counts"],
            "Accountant": privacy["accountant"],
            "Events": events or "none",
            "Releases by client": releases,
            "Steps of private training": steps or "none",
            "ε budget": f"{privacy['epsilon_budget']:g}" if private(privacy) else DASH,
            "ε spent": DASH if spent is None else f"{spent:.4g} (the client that spent most)",
            "δ": f"{privacy['delta']:g}",
            "Noise": _noise(privacy),
            "Not covered": bullets(privacy["not_covered"]),
        }
    )


def _noise(privacy: Mapping[str, Any]) -> str:
    if not private(privacy):
        return "none was added"
    return SEEDED if privacy["noise"] == Noise.SEEDED else SYSTEM


def ledger_section(record: Record) -> Html:
    """What every client released and when."""
    spent = {each["round"]: each["clients"] for each in record["rounds"]}
    parts = []
    for client, ledger in record["ledgers"].items():
        rows = []
        count = sum(_purpose(entry) == Purpose.RELEASE for entry in ledger["entries"])
        for entry in ledger["entries"]:
            after = spent.get(entry["round"], {}).get(client, {}).get("epsilon")
            row = (
                str(entry["round"]),
                _events(entry),
                _terms(entry),
                DASH if after is None else f"{after:.4g}",
            )
            rows.append(row)
        table = grid(("Round", "Events", "Terms", "ε spent so far"), rows, class_="text")
        parts.append(
            folded(f"{client}: {count} releases", table if rows else tag("p", "nothing was released"))
        )
    return section("ledger", "The ledgers", joined(parts))


def _events(entry: Mapping[str, Any]) -> str:
    told = []
    for event in entry["events"]:
        numbers = [f"{key} {value:.4g}" for key, value in event.items() if isinstance(value, float)]
        told.append(" ".join([event["kind"], *numbers]))
    words = "; ".join(told)
    return words if _purpose(entry) == Purpose.RELEASE else f"{_purpose(entry)}: {words}"


def _purpose(entry: Mapping[str, Any]) -> str:
    """What was paid for; older records know releases only."""
    return str(entry.get("purpose", Purpose.RELEASE))


def _terms(entry: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in entry["terms"].items())
