"""Small records made by hand, in the shape that a run writes."""

from vpdr.records import ClientRound, FinalAccuracy, PrivacyStatement, RoundRecord, RunRecord
from vpdr.report.stats import LabelledRun, SettingSummary, summarise_runs

CLIENTS = ("north", "south")
CAVEATS = ("the noise is reproducible from the seed: this is a simulation, not a private run",)


def privacy(level: str = "conditional", *, epsilon: float = 1.0, releases: int = 2) -> PrivacyStatement:
    """A statement; no releases means that nothing left the clients."""
    return PrivacyStatement(
        sentence=f"a sentence about {level} with epsilon {epsilon:g}",
        level=level,
        expected_level=level,
        unit="one sample of one client, against everybody else",
        adjacency="replace-same-label",
        encoder="personal",
        counts="public",
        accountant="exact",
        events={"gaussian": 4} if releases else {},
        epsilon_budget=epsilon,
        epsilon_spent=None if level == "not private" else (epsilon if releases else 0.0),
        delta=1e-5,
        noise="seeded",
        releases=dict.fromkeys(CLIENTS, releases),
        not_covered=CAVEATS,
    )


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


def release(statement: PrivacyStatement, ratio: float | None, overlap: float | None) -> dict[str, float | None]:
    if not any(statement.releases.values()):
        return {}
    diagnostics = {"noise_to_signal": ratio, "relative_error": 50.0, "energy_ratio": 1.0}
    return diagnostics if overlap is None else {**diagnostics, "overlap": overlap, "chance": 0.2}


def record(
    seed: int,
    own: float,
    everything: float | None = None,
    nearest: float | None = None,
    statement: PrivacyStatement | None = None,
    ratio: float | None = 4.0,
    overlap: float | None = None,
    rounds: int = 2,
    fused: float | None = None,
) -> RunRecord:
    """One finished run in which all clients do equally well."""
    stated = statement or privacy()
    measured = accuracy(own, own if everything is None else everything, nearest, fused)
    client = ClientRound(
        present=True,
        losses={},
        accuracy=measured,
        features={},
        release=release(stated, ratio, overlap),
        epsilon=stated.epsilon_spent,
        seconds={},
    )
    final = {
        scope: {
            name: FinalAccuracy(clients=dict.fromkeys(CLIENTS, value), average=value, std=0.0)
            for name, value in by_predictor.items()
        }
        for scope, by_predictor in measured.items()
    }
    terms = {"adjacency": "replace-same-label", "encoder": "personal", "counts": "public", "basis": "proved"}
    event = {"kind": "gaussian", "multiplier": 8.25}
    entry = {"round": 1, "purpose": "release", "events": [event], "terms": {**terms, "noise": "seeded"}}
    ledger = {"budget": None, "accountant": "exact", "adjacency": "replace-same-label"}
    ledger["entries"] = [entry] if any(stated.releases.values()) else []
    return RunRecord(
        name="trial",
        identity="0123456789abcdef",
        seed=seed,
        plan={"run": {"rounds": rounds, "seed": seed}, "mechanism": {"kind": stated.level}},
        clients=CLIENTS,
        rounds=tuple(
            RoundRecord(round=r + 1, clients=dict.fromkeys(CLIENTS, client), seconds={}) for r in range(rounds)
        ),
        final=final,
        privacy=stated,
        ledgers={name: {"client": name, **ledger} for name in CLIENTS},
        versions={"vpdr": "0.1.0", "python": "3.11"},
        wall_seconds=1.5,
    )


def trial() -> list[LabelledRun]:
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


def summary(runs: list[LabelledRun], baseline: str | None = "local") -> dict[str, SettingSummary]:
    return summarise_runs(runs, baseline)
