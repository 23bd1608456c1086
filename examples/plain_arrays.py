"""A private release of plain arrays, without any of the training loop."""

import numpy as np

from vpdr import Budget, BudgetExceeded, Ledger, Vpp

ROUNDS = 3
rng = np.random.default_rng(0)
labels = rng.integers(0, 10, size=2_000)
features = rng.normal(size=(10, 512))[labels] + rng.normal(size=(2_000, 512))  # from your own encoder

budget = Budget(epsilon=1.0, delta=1e-5)
mechanism = Vpp.calibrated(budget, ROUNDS, clip_norm=20.0, dim=512)
ledger = Ledger(client="hospital-a", budget=budget)

for number in range(1, ROUNDS + 2):  # one more than the budget allows
    release = mechanism.release(features, labels)
    try:
        upload = release.charge_to(ledger, round=number)  # charges the ledger first
    except BudgetExceeded as refusal:
        print(refusal)
        break
    vectors, classes = upload.vectors.numpy(), upload.labels.numpy()  # all that may be sent
    print(
        f"round {number}: {vectors.shape} for classes {classes.min()}-{classes.max()}, "
        f"epsilon {ledger.epsilon_spent:.3f}"
    )
    print(f"   {release.receipt.level}, noise to signal {release.diagnostics['noise_to_signal']:.2f}")
