"""Small records made by hand, in the shape that a run writes."""

from typing import Any

from vpdr.report.stats import summarise_runs

CLIENTS = ("north", "south")
CAVEATS = ["the noise is reproducible from the seed: this is a simulation, not a private run"]


def privacy(level: str = "conditional", *, epsilon: float = 1.0, releases: int = 2) -> dict[str, Any]:
    """A statement; no releases means that nothing left the clients."""
    return {
        "sentence": f"a sentence about {level} with epsilon {epsilon:g}",
        "level": level,
        "expected_level": level,
        "unit": "one sample of one client, against everybody else",
        "adjacency": "replace-same-label",
        "encoder": "personal",
        "counts": "public",
        "accountant": "exact",
        "events": {"gaussian": 4} if releases else {},
        "epsilon_budget": epsilon,
        "epsilon_spent": None if level == "not private" else (epsilon if releases else 0.0),
        "delta": 1e-5,
        "noise": "seeded",
        "releases": dict.fromkeys(CLIENTS, releases),
        "not_covered": list(CAVEATS),
    }


NOTHING = privacy("proved", releases=0)
OPEN = privacy("not private")


def accuracy(
    own: float, everything: float, nearest: float | None, fused: float | None = None
) -> dict[str, dict[str, float]]:
    anchors = {} if nearest is None else {"nearest": nearest, "nearest_cosine": nearest}
    anchors |= {} if fused is None else {"fused": fused}
    return {
        "own": {"framework": own, "head": own, **anchors},
        "all": {"framework": everything, "head": everything, **anchors},
    }


def release(statement: dict[str, Any], ratio: float | None, overlap: float | None) -> dict[str, Any]:
    if not any(statement["releases"].values()):
        return {}
    diagnostics = {"noise_to_signal": ratio, "relative_error": 50.0, "energy_ratio": 1.0}
    return diagnostics if overlap is None else {**diagnostics, "overlap": overlap, "chance": 0.2}


def record(
    seed: int,
    own: float,
    everything: float | None = None,
    nearest: float | None = None,
    statement: dict[str, Any] | None = None,
    ratio: float | None = 4.0,
    overlap: float | None = None,
    rounds: int = 2,
    fused: float | None = None,
) -> dict[str, Any]:
    """One finished run in which all clients do equally well."""
    stated = statement or privacy()
    measured = accuracy(own, own if everything is None else everything, nearest, fused)
    spent = stated["epsilon_spent"]
    client = {"present": True, "accuracy": measured, "release": release(stated, ratio, overlap), "epsilon": spent}
    final = {
        scope: {
            name: {"clients": dict.fromkeys(CLIENTS, value), "average": value, "std": 0.0}
            for name, value in by_predictor.items()
        }
        for scope, by_predictor in measured.items()
    }
    terms = {"adjacency": "replace-same-label", "encoder": "personal", "counts": "public"}
    entry = {"round": 1, "events": [{"kind": "gaussian", "multiplier": 8.25}], "terms": terms}
    entries = [entry] if any(stated["releases"].values()) else []
    return {
        "name": "trial",
        "seed": seed,
        "plan": {"run": {"rounds": rounds, "seed": seed}, "mechanism": {"kind": stated["level"]}},
        "clients": list(CLIENTS),
        "rounds": [{"round": r + 1, "clients": dict.fromkeys(CLIENTS, client)} for r in range(rounds)],
        "final": final,
        "privacy": stated,
        "ledgers": {name: {"client": name, "entries": entries} for name in CLIENTS},
        "versions": {"vpdr": "0.1.0", "python": "3.11"},
        "wall_seconds": 1.5,
    }


def trial() -> list[tuple[str, str, dict[str, Any]]]:
    """Two settings, three seeds: sharing helps in one, cannot be told from nothing in the other."""
    runs = []
    for seed, jitter in enumerate((0.0, 0.01, 0.02)):
        strict = privacy("proved", epsilon=8)
        runs += [
            ("same", "local", record(seed, 0.6 + jitter, statement=NOTHING)),
            ("same", "none", record(seed, 0.6 + jitter, nearest=0.5, statement=OPEN, ratio=0.0)),
            ("same", "vpdr-1", record(seed, 0.62 - jitter, nearest=0.2, overlap=0.2)),
            ("same", "strict-8", record(seed, 0.61 + jitter / 2, nearest=0.4, statement=strict, ratio=None)),
            ("apart", "local", record(seed, 0.6, 0.3 + jitter, statement=NOTHING)),
            ("apart", "none", record(seed, 0.6, 0.3, nearest=0.9, statement=OPEN, ratio=0.0)),
            ("apart", "vpdr-1", record(seed, 0.5 + jitter, 0.2, nearest=0.1, overlap=0.3 + jitter)),
            ("apart", "strict-8", record(seed, 0.6, 0.3 + jitter, 0.8, statement=strict, ratio=0.5)),
        ]
    return runs


def summary(runs: list[tuple[str, str, dict[str, Any]]], baseline: str | None = "local") -> dict[str, Any]:
    return summarise_runs(runs, baseline)
