"""Privacy accounting: budgets, events, accountants, receipts and ledgers. Numbers only, no tensors."""

from vpdr.privacy.accountants import (
    ACCOUNTANTS,
    Accountant,
    Budget,
    Event,
    GaussianEvent,
    GdpAccountant,
    NotPrivateEvent,
    PureEvent,
    RepeatedEvent,
    check_rounds,
    epsilon_from_mu,
    event_to_dict,
    gaussian_precision,
    get_accountant,
    pure_epsilons,
)
from vpdr.privacy.guarantee import (
    DECLARABLE_ENCODERS,
    Adjacency,
    ChargePurpose,
    CountVisibility,
    EncoderKind,
    GuaranteeLevel,
    GuaranteeTerms,
    NoiseOrigin,
    Receipt,
    SensitivityBasis,
    declared_encoder,
    parse_enum,
)
from vpdr.privacy.ledger import (
    BudgetExceeded,
    FileBackedLedger,
    Ledger,
    LedgerEntry,
    LedgerFile,
    encode_ledger,
    entry_from_dict,
    entry_to_dict,
    open_file_ledger,
)
