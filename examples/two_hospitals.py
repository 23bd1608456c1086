"""Two hospitals share private prototypes: release, charge, merge, predict; plain arrays and no engine of ours."""

import numpy as np

import vpdr
from vpdr import Adjacency, Budget, EncoderKind, Ledger, Rapp, ReleaseContext

CLASSES, DIM, ROUNDS = 4, 64, 3
budget, adjacency = Budget(epsilon=4.0, delta=1e-5), Adjacency.REPLACE_ONE
rng = np.random.default_rng(0)
centres = rng.normal(size=(CLASSES, DIM))


def patients(count: int, shares: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Features of an encoder that never saw these patients, and their classes."""
    labels = rng.choice(CLASSES, size=count, p=shares)
    return centres[labels] + rng.normal(size=(count, DIM)), labels


hospitals = {"north": patients(400, [0.5, 0.5, 0.0, 0.0]), "south": patients(400, [0.0, 0.1, 0.45, 0.45])}
mechanism = Rapp.calibrated(budget, ROUNDS, clip_norm=12.0, classes=CLASSES, dim=DIM, adjacency=adjacency)
ledgers = {name: Ledger(client=name, budget=budget, adjacency=adjacency) for name in hospitals}
states, shared = {}, None

for number in range(1, ROUNDS + 1):
    uploads = {}
    for name, (features, labels) in hospitals.items():
        context = ReleaseContext(
            client=name, round=number, encoder=EncoderKind.PUBLIC, last_broadcast=shared, state=states.get(name, {})
        )
        release = mechanism.release(features, labels, context)
        uploads[name] = release.charge_to(ledgers[name], round=number)  # only this leaves the hospital
        states[name] = release.state
    shared = vpdr.merge(uploads)  # at the server
    print(f"round {number}: epsilon {ledgers['north'].epsilon_spent:.2f} spent, {release.receipt.level}")

test, truth = patients(500, [0.25] * CLASSES)
features, labels = hospitals["north"]
means = np.stack([features[labels == k].mean(axis=0) if (labels == k).any() else np.zeros(DIM) for k in range(CLASSES)])


def own_head(rows: np.ndarray) -> np.ndarray:
    """The logits of the client's own model: here one that knows its own class means."""
    return rows @ means.T - 0.5 * (means**2).sum(axis=1)


for rule in ("head", "nearest", "fused"):
    labels_of = vpdr.predict(test, shared, rule=rule, head=own_head, own_features=features, own_labels=labels)
    print(f"{rule}: {100 * (labels_of.numpy() == truth).mean():.1f} % of all classes are right")
