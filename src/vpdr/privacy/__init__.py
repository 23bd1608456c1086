"""Privacy accounting: budgets, events, accountants, receipts and ledgers. Numbers only, no tensors."""

from vpdr.privacy.accountants import (
    ACCOUNTANTS,
    Budget,
    Event,
    GaussianEvent,
    NotPrivateEvent,
    PureEvent,
    get_accountant,
)
from vpdr.privacy.guarantee import (
    Adjacency,
    ChargePurpose,
    CountVisibility,
    EncoderKind,
    GuaranteeLevel,
    GuaranteeTerms,
    NoiseOrigin,
    Receipt,
    SensitivityBasis,
    parse_enum,
)
from vpdr.privacy.ledger import BudgetExceeded, Ledger, LedgerFile
