"""Privacy accounting: budgets, events, accountants, receipts and ledgers. Numbers only, no tensors."""

from vpdr.privacy.accountants import ACCOUNTANTS, Budget, Event, GaussianEvent, NotPrivateEvent, get_accountant
from vpdr.privacy.guarantee import Adjacency, ChargePurpose, EncoderKind, GuaranteeLevel, NoiseOrigin, Receipt
from vpdr.privacy.ledger import Amendment, BudgetExceeded, Charge, Ledger, LedgerEntry
from vpdr.privacy.ledger_file import LedgerFile
