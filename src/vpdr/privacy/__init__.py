"""Numbers only: budgets, events, accountants, receipts, the ledger. No tensor is ever seen here."""

from vpdr.privacy.accountants import ACCOUNTANTS, Accountant, accountant_named
from vpdr.privacy.budget import Budget
from vpdr.privacy.entries import Entry
from vpdr.privacy.events import Event, Gaussian, NotPrivate, Pure
from vpdr.privacy.ledger import BudgetExceeded, Ledger
from vpdr.privacy.ledger_file import LedgerFile
from vpdr.privacy.terms import Adjacency, Basis, Counts, EncoderKind, Level, Noise, Purpose, Receipt, Terms

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Adjacency",
    "Basis",
    "Budget",
    "BudgetExceeded",
    "Counts",
    "EncoderKind",
    "Entry",
    "Event",
    "Gaussian",
    "Ledger",
    "LedgerFile",
    "Level",
    "Noise",
    "NotPrivate",
    "Pure",
    "Purpose",
    "Receipt",
    "Terms",
    "accountant_named",
]
