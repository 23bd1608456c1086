"""The record of a run as one JSON object, with its privacy statement; docs/record.md has every field."""

import platform
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy
import torch

from vpdr.config import RunConfig, guarantee_level, release_encoder
from vpdr.privacy import EncoderKind, GuaranteeLevel, Ledger, NoiseOrigin, entry_to_dict, event_to_dict

NOT_RELEASED = "not released"
RECORD_VERSION = 1
_ENCODER_DESCRIPTIONS = {str(kind): f"{kind} encoder" for kind in EncoderKind} | {
    str(EncoderKind.DP_TRAINED): "personal encoder (its private training is part of the epsilon)"
}


def finished_record(
    config: RunConfig, rounds: Sequence[Mapping[str, Any]], ledgers: Sequence[Ledger], wall_seconds: float
) -> dict[str, Any]:
    """The record of a finished run.

    Args:
        config: the config of the run.
        rounds: one record per round.
        ledgers: one ledger per client.
        wall_seconds: how long the run took.
    """
    return {
        "schema": "vpdr-record",
        "version": RECORD_VERSION,
        "name": config.run.name,
        "identity": config.config_hash,
        "seed": config.run.seed,
        "plan": config.to_dict(),
        "clients": [ledger.client for ledger in ledgers],
        "rounds": list(rounds),
        "final": final_accuracies(rounds[-1]) if rounds else {},
        "privacy": privacy_statement(config, ledgers),
        "ledgers": {ledger.client: ledger.state_dict() for ledger in ledgers},
        "versions": library_versions(),
        "wall_seconds": wall_seconds,
    }


def final_accuracies(last_round: Mapping[str, Any]) -> dict[str, Any]:
    """The accuracies of the last round by scope and predictor, with mean and deviation over clients."""
    accuracies = {name: content["accuracy"] for name, content in last_round["clients"].items()}
    scopes = dict.fromkeys(scope for by_scope in accuracies.values() for scope in by_scope)
    out: dict[str, Any] = {}
    for scope in scopes:
        by_client = {client: by_scope.get(scope, {}) for client, by_scope in accuracies.items()}
        predictors = sorted({predictor for values in by_client.values() for predictor in values})
        out[scope] = {
            predictor: mean_and_std({client: values.get(predictor) for client, values in by_client.items()})
            for predictor in predictors
        }
    return out


def mean_and_std(values: Mapping[str, float | None]) -> dict[str, Any]:
    """Values by client, their unweighted mean and their sample standard deviation."""
    known = [value for value in values.values() if value is not None and value == value]
    return {
        "clients": dict(values),
        "average": statistics.fmean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else None,
    }


def library_versions() -> dict[str, str]:
    """The versions of the libraries that computed the record."""
    return {
        "vpdr": metadata.version("vpdr"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": str(numpy.__version__),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def privacy_statement(config: RunConfig, ledgers: Sequence[Ledger]) -> dict[str, Any]:
    """What the guarantee of a run covers: its terms, what was spent, its level and its caveats.

    Args:
        config: the config of the run.
        ledgers: one ledger per client; the worst one counts.

    Returns:
        The statement as data, and as one sentence under `sentence`.
    """
    levels = list(GuaranteeLevel)
    entries = [entry for ledger in ledgers for entry in ledger.entries]
    releases = [entry for entry in entries if entry.is_release]
    level = max((ledger.level for ledger in ledgers), key=levels.index, default=GuaranteeLevel.PROVED)
    events = Counter(event_to_dict(event)["kind"] for entry in entries for event in entry.receipt.events)
    counts = _count_visibility(releases)
    statement = {
        "level": str(level if releases else GuaranteeLevel.PROVED),
        "expected_level": str(guarantee_level(config)),
        "unit": "one sample of one client, against everybody else",
        "adjacency": config.budget.adjacency,
        "encoder": str(release_encoder(config)),
        "counts": counts,
        "accountant": config.budget.accountant,
        "events": dict(events),
        "epsilon_budget": config.budget.epsilon,
        "epsilon_spent": max((ledger.epsilon_spent for ledger in ledgers), default=0.0),
        "delta": config.budget.delta,
        "noise": config.release.noise,
        "releases": {ledger.client: len(ledger.releases) for ledger in ledgers},
        "training_steps": {ledger.client: ledger.training_steps for ledger in ledgers},
        "not_covered": _caveats(config, level, counts),
    }
    return {"sentence": _describe_statement(statement, bool(releases)), **statement}


def _describe_statement(statement: Mapping[str, Any], released: bool) -> str:
    if not released:
        return "nothing was released, so nothing can be learnt from it"
    if statement["level"] == GuaranteeLevel.NONE:
        return "not private: prototypes were released as they are"
    return (
        f"({statement['epsilon_spent']:.4g}, {statement['delta']:g})-DP per client for "
        f"{statement['adjacency']}, {_ENCODER_DESCRIPTIONS[statement['encoder']]}, "
        f"{statement['counts']} counts, {statement['accountant']} accountant: {statement['level']}"
        f"{'' if statement['noise'] == NoiseOrigin.SYSTEM else ', simulated (the noise comes from the seed)'}"
    )


def _count_visibility(releases: Sequence[Any]) -> str:
    kinds = {entry_to_dict(entry)["terms"]["counts"] for entry in releases}
    return " and ".join(sorted(kinds)) or NOT_RELEASED


def _caveats(config: RunConfig, level: GuaranteeLevel, counts: str) -> list[str]:
    """What the numbers do not include; nothing where no guarantee is claimed."""
    if counts == NOT_RELEASED or level is GuaranteeLevel.NONE:
        return []
    caveats = ["settings such as the clip norm may have been chosen by looking at results"]
    if config.release.noise == NoiseOrigin.SEEDED:
        caveats.insert(0, "the noise is reproducible from the seed: this is a simulation, not a private run")
    if release_encoder(config) is EncoderKind.PERSONAL or level is GuaranteeLevel.CONDITIONAL:
        caveats.append("the encoder was trained on the private samples between releases, without accounting")
    if "public" in counts:
        caveats.append("class counts and which classes a client has are treated as public")
    if level is GuaranteeLevel.AS_PUBLISHED:
        caveats.append("the sensitivity of clusters is the paper's claim; counter-examples are known")
    if config.weights.kind != "uniform":
        caveats.append(f"weights by {config.weights.kind}: the sizes are declared public")
    return caveats
