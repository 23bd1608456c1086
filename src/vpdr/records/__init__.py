"""The record of a run and the directory that holds it: metrics, ledgers and the privacy statement."""

from vpdr.records.record import RECORD_VERSION, finished_record, privacy_statement
from vpdr.records.run_dir import RunDir

__all__ = ["RECORD_VERSION", "RunDir", "finished_record", "privacy_statement"]
