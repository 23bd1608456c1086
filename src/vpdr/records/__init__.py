"""The record of a run and the directory that holds it: metrics, ledgers and the privacy statement."""

from vpdr.records.record import RECORD_VERSION, finished_record, privacy_statement
from vpdr.records.run_dir import (
    RECONSTRUCTIONS_DIR,
    ReconstructionStore,
    RunDir,
    UploadStore,
    file_mode,
    read_record,
    rows_as_csv,
)

__all__ = [
    "RECONSTRUCTIONS_DIR",
    "RECORD_VERSION",
    "ReconstructionStore",
    "RunDir",
    "UploadStore",
    "file_mode",
    "finished_record",
    "privacy_statement",
    "read_record",
    "rows_as_csv",
]
