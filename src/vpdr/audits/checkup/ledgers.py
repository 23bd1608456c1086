"""The ledger: it pays first, refuses what is too much, and does not forget."""

import tempfile
from pathlib import Path

import torch

from vpdr.audits.checkup.base import Failed, must
from vpdr.mechanisms import Igpp, Occasion
from vpdr.privacy import Budget, BudgetExceeded, EncoderKind, Ledger, LedgerFile

BUDGET = Budget(1.0, 1e-5)


def ledgers() -> str:
    """Two releases are paid on disk, the third is not handed over, and a second reader sees all of it."""
    mechanism = Igpp.calibrated(BUDGET, 2, clip_norm=1.0)
    occasion = Occasion(encoder=EncoderKind.PUBLIC)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.json"
        file = LedgerFile.create(path, Ledger(client="client", budget=BUDGET))
        for t in (1, 2):
            release = mechanism.release(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64), occasion)
            release.charged_to(file, round=t)
            must(len(LedgerFile(path).read().entries) == t, f"release {t} was handed over before it was paid")
        third = mechanism.release(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64), occasion)
        try:
            third.charged_to(file, round=3)
        except BudgetExceeded:
            pass
        else:
            raise Failed("a third release passed a budget for two")
        again = LedgerFile(path).read()
        must(len(again.entries) == 2, f"a refused release changed the ledger: {len(again.entries)} entries")
        must(again.spent <= BUDGET.epsilon, f"spent {again.spent:.6g} of {BUDGET.epsilon:g}")
        mode = path.stat().st_mode & 0o077
        must(mode == 0, f"others may read the ledger file (mode {mode:o})")
    return (
        f"pays before it hands over, refuses the third of two, survives reopening ({again.spent:.4f} spent)"
    )
