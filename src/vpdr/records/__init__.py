"""What ran, as data: metrics of every round, what was spent, and under which terms."""

from vpdr.records.record import RECORD_VERSION, finished_record
from vpdr.records.statement import privacy_statement
from vpdr.records.store import RunFolder

__all__ = ["RECORD_VERSION", "RunFolder", "finished_record", "privacy_statement"]
