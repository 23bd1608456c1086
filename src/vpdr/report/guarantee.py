"""What the guarantee of each method covers, and the ledgers of a run, as data for the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vpdr.privacy import ChargePurpose, GuaranteeLevel, NoiseOrigin
from vpdr.report.figures import CaptionedFigure
from vpdr.report.format import DASH, NOTHING_RELEASED, count_noun, four_digits, level_label, method_name, short_number
from vpdr.report.stats import Record, RecordsByMethod, has_private_release
from vpdr.report.tables import Table

PrivacyStatement = Mapping[str, Any]  # the entry "privacy" of a record

LEVEL_MEANINGS: dict[str, str] = {
    GuaranteeLevel.PROVED: "holds end to end for the stated adjacency.",
    GuaranteeLevel.CONDITIONAL: "holds only if the personal encoder is taken as fixed, as if not trained on the data.",
    GuaranteeLevel.AS_PUBLISHED: "the claim of the paper; the sensitivity behind it is not a bound.",
    GuaranteeLevel.NONE: "the prototypes went out as they were; no finite ε describes them.",
    NOTHING_RELEASED: "no client sent anything, so that there is nothing to protect.",
}
SEEDED_NOISE = (
    "from the seed: whoever knows it can repeat the noise, so that this is a simulation and not a private run"
)
SYSTEM_NOISE = "from the operating system: nobody can repeat it"


@dataclass(frozen=True, kw_only=True, slots=True)
class GuaranteeSection:
    """The content of the section on guarantees."""

    is_simulation: bool
    table: Table
    levels: Mapping[str, str]
    figures: Sequence[CaptionedFigure]
    caveats: Sequence[str]
    terms: Mapping[str, Mapping[str, str | Sequence[str]]]


def guarantee_section(settings: Mapping[str, RecordsByMethod], figures: Sequence[CaptionedFigure]) -> GuaranteeSection:
    """All privacy statements, the meaning of their levels, and what none of them covers."""
    statements = statements_by_method(settings)
    levels = {level_label(privacy) for privacy in statements.values()}
    rows = [[name, level_label(privacy), privacy["sentence"]] for name, privacy in statements.items()]
    return GuaranteeSection(
        is_simulation=any(
            privacy["noise"] == NoiseOrigin.SEEDED and has_private_release(privacy) for privacy in statements.values()
        ),
        table=Table.from_texts(["Method", "Guarantee", "Statement"], rows),
        levels={level: meaning for level, meaning in LEVEL_MEANINGS.items() if level in levels},
        figures=figures,
        caveats=caveats(statements),
        terms={f"{name}: {level_label(p)}": statement_terms(p) for name, p in statements.items()},
    )


def statements_by_method(settings: Mapping[str, RecordsByMethod]) -> dict[str, PrivacyStatement]:
    """The weakest statement of each method over its seeds; one per setting only where settings differ."""
    groups: dict[str, dict[str, tuple[PrivacyStatement, list[str]]]] = {}
    for setting, methods in settings.items():
        for method, records in methods.items():
            privacy = max((record["privacy"] for record in records), key=_epsilon_spent)
            key = json.dumps({**privacy, "epsilon_spent": f"{_epsilon_spent(privacy):.4g}"}, sort_keys=True)
            groups.setdefault(method, {}).setdefault(key, (privacy, []))[1].append(setting)
    return {
        method_name(method) + (f" ({', '.join(names)})" if len(statements) > 1 else ""): privacy
        for method, statements in groups.items()
        for privacy, names in statements.values()
    }


def _epsilon_spent(privacy: PrivacyStatement) -> float:
    return float("inf") if privacy["epsilon_spent"] is None else float(privacy["epsilon_spent"])


def caveats(statements: Mapping[str, PrivacyStatement]) -> list[str]:
    """Every caveat once, with the methods that it concerns unless it concerns all."""
    concerned: dict[str, list[str]] = {}
    for name, privacy in statements.items():
        for caveat in privacy["not_covered"]:
            concerned.setdefault(caveat, []).append(name)
    return [
        caveat if len(names) == len(statements) else f"{caveat} ({', '.join(names)})"
        for caveat, names in concerned.items()
    ]


def statement_terms(privacy: PrivacyStatement) -> dict[str, str | Sequence[str]]:
    """Every field of one privacy statement."""
    spent, level = privacy["epsilon_spent"], level_label(privacy)
    releases = ", ".join(f"{client} {count}" for client, count in privacy["releases"].items())
    steps = ", ".join(f"{client} {count}" for client, count in privacy.get("training_steps", {}).items())
    events = ", ".join(f"{count} {kind}" for kind, count in privacy["events"].items())
    noise = SEEDED_NOISE if privacy["noise"] == NoiseOrigin.SEEDED else SYSTEM_NOISE
    return {
        "Statement": privacy["sentence"],
        "Level": f"{level}: {LEVEL_MEANINGS.get(level, '')}",
        "Unit": privacy["unit"],
        "Adjacency": privacy["adjacency"],
        "Encoder": privacy["encoder"],
        "Class counts": privacy["counts"],
        "Accountant": privacy["accountant"],
        "Events": events or "none",
        "Releases by client": releases,
        "Steps of private training": steps or "none",
        "ε budget": short_number(privacy["epsilon_budget"]) if has_private_release(privacy) else DASH,
        "ε spent": DASH if spent is None else f"{four_digits(spent)} (the client that spent most)",
        "δ": short_number(privacy["delta"]),
        "Noise": noise if has_private_release(privacy) else "none was added",
        "Not covered": privacy["not_covered"],
    }


def ledger_tables(record: Record) -> dict[str, Table]:
    """The ledger of every client, by client and number of releases."""
    spent = {each["round"]: each["clients"] for each in record["rounds"]}
    tables = {}
    for client, ledger in record["ledgers"].items():
        rows = [
            [
                str(entry["round"]),
                _events_text(entry),
                ", ".join(f"{key} {value}" for key, value in entry["terms"].items()),
                four_digits(spent.get(entry["round"], {}).get(client, {}).get("epsilon")),
            ]
            for entry in ledger["entries"]
        ]
        count = sum(_purpose(entry) == ChargePurpose.RELEASE for entry in ledger["entries"])
        table = Table.from_texts(["Round", "Events", "Terms", "ε spent so far"], rows)
        tables[f"{client}: {count_noun(count, 'release')}"] = table
    return tables


def _events_text(entry: Mapping[str, Any]) -> str:
    texts = []
    for event in entry["events"]:
        numbers = [f"{key} {four_digits(value)}" for key, value in event.items() if isinstance(value, float)]
        texts.append(" ".join([event["kind"], *numbers]))
    text, purpose = "; ".join(texts), _purpose(entry)
    return text if purpose == ChargePurpose.RELEASE else f"{purpose}: {text}"


def _purpose(entry: Mapping[str, Any]) -> str:
    """The purpose of a charge; records of older versions have releases only."""
    return str(entry.get("purpose", ChargePurpose.RELEASE))
