"""Privacy accounting: budgets, events, accountants, receipts and ledgers. Numbers only, no tensors."""

from vpdr.privacy.accountants import (
    ACCOUNTANTS,
    Accountant,
    Budget,
    Event,
    GaussianEvent,
    NotPrivateEvent,
    PureEvent,
    get_accountant,
)
from vpdr.privacy.ledger import (
    Adjacency,
    BudgetExceeded,
    ChargePurpose,
    CountVisibility,
    EncoderKind,
    GuaranteeLevel,
    GuaranteeTerms,
    Ledger,
    LedgerEntry,
    NoiseOrigin,
    Receipt,
    SensitivityBasis,
)
from vpdr.privacy.ledger_file import LedgerFile

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Adjacency",
    "Budget",
    "BudgetExceeded",
    "ChargePurpose",
    "CountVisibility",
    "EncoderKind",
    "Event",
    "GaussianEvent",
    "GuaranteeLevel",
    "GuaranteeTerms",
    "Ledger",
    "LedgerEntry",
    "LedgerFile",
    "NoiseOrigin",
    "NotPrivateEvent",
    "PureEvent",
    "Receipt",
    "SensitivityBasis",
    "get_accountant",
]
