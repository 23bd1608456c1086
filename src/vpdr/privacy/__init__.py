"""Privacy accounting: budgets, events, accountants, receipts and ledgers. Numbers only, no tensors."""

from vpdr.privacy.accountants import ACCOUNTANTS, Budget, Event, GaussianEvent, NotPrivateEvent, get_accountant
from vpdr.privacy.guarantee import Adjacency, ChargePurpose, EncoderKind, GuaranteeLevel, NoiseOrigin, Receipt
from vpdr.privacy.ledger import BudgetExceeded, Charge, Ledger, LedgerFile
