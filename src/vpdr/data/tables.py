"""Tables on the user's disk: csv, jsonl, npz and parquet files, as named columns."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np

from vpdr.data.spec import IssueLog, read_decompressed
from vpdr.validation import InvalidInput

_REPLACEMENT = "\ufffd"
_MAX_NAMES_LISTED = 8  # in one line


@dataclass(frozen=True, slots=True)
class CsvTable:
    """Rows of equal width, each with the number of its last line; the header is empty if there is none."""

    name: str
    header: list[str]
    rows: list[tuple[int, list[str]]]


def read_csv(path: Path, issues: IssueLog, *, has_header: bool | None = None) -> CsvTable:
    """All rows of the most common width; the others are logged and left out.

    If it is not known, the first row is a header where none of its fields is a number.
    """
    name = issues.relative_path(path)
    reader = csv.reader(_decode_lines(path, name, issues))
    rows: list[tuple[int, list[str]]] = []
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            issues.error(f"{name} line {reader.line_num}: expected a row, got {error}; fix it")
            continue
        if row:
            rows.append((reader.line_num, row))
    header = []
    if has_header is None:
        has_header = bool(rows) and not any(field.strip().isdecimal() for field in rows[0][1])
    if rows and has_header:
        header = rows.pop(0)[1]
    width = mode(len(row) for _, row in rows) if rows else 0
    if width == 1:
        raise ValueError("one column")
    for number, row in rows:
        if len(row) != width:
            issues.error(f"{name} line {number}: expected {width} columns, got {len(row)}; fix it")
    return CsvTable(name, header, [(number, row) for number, row in rows if len(row) == width])


def _decode_lines(path: Path, name: str, issues: IssueLog) -> list[str]:
    """The lines of a file, each decoded by itself: one in another encoding must not change the others."""
    content = read_decompressed(path)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        issues.warning(f"{name}: expected UTF-8, got UTF-16; it was read as that")
        return content.decode("utf-16").splitlines(keepends=True)
    decoded = [_decode_line(line) for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    other = [number for number, (_, encoding) in enumerate(decoded, 1) if encoding != "utf-8"]
    lost = [number for number, (text, _) in enumerate(decoded, 1) if _REPLACEMENT in text]
    if other:
        encodings = " or ".join(sorted({encoding for _, encoding in decoded} - {"utf-8"}))
        issues.warning(
            f"{name}: expected UTF-8, got something else on {len(other)} lines, the first of them line "
            f"{other[0]}; they were read as {encodings}"
        )
    if lost:
        issues.warning(
            f"{name}: {len(lost)} lines have characters that were lost before (U+FFFD), "
            f"the first of them line {lost[0]}"
        )
    return [text + "\n" for text, _ in decoded]


def _decode_line(line: bytes) -> tuple[str, str]:
    """The text of a line, and its encoding."""
    for encoding in ("utf-8", "cp1252"):
        try:
            return line.decode(encoding), encoding
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1"), "latin-1"  # which decodes everything


@dataclass(frozen=True, slots=True, repr=False)  # values are private
class Columns:
    """A table by columns, all of one length."""

    name: str  # of the file, as it is shown in an issue
    columns: Mapping[str, Sequence[Any] | np.ndarray]
    lines: Sequence[int] | None = None  # of the file, one for each row; None: a file without lines

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def place(self, row: int) -> str:
        """Where a row is, for an issue."""
        return f"row {row}" if self.lines is None else f"line {self.lines[row]}"

    def find(self, role: str, setting: str, candidates: Sequence[str]) -> str | None:
        """The name of a column: the one that the user named, else the first candidate that there is.

        Raises InvalidInput if the user named a column that does not exist.
        """
        if setting and setting not in self.columns:
            raise InvalidInput(
                f"{self.name}: expected a column {setting!r}, got {', '.join(self.columns)}; "
                f"set benchmark.{role}_column to one of them"
            )
        names = {name.strip().lower(): name for name in self.columns}
        return setting or next((names[each] for each in candidates if each in names), None)

    def find_label(self, setting: str, candidates: Sequence[str]) -> str:
        """As `find` for the column of labels, which must be there and must be the only candidate."""
        found = [name for name in self.columns if name.strip().lower() in candidates]
        if setting or len(found) == 1:
            return self.find("label", setting, candidates) or ""
        raise InvalidInput(
            f"{self.name}: expected one column of labels ({', '.join(candidates)}), got "
            f"{' and '.join(found) or ', '.join(list(self.columns)[:_MAX_NAMES_LISTED])}; set benchmark.label_column"
        )


def read_columns(path: Path, issues: IssueLog) -> Columns:
    """A file as columns, by its suffix; rows that cannot be read are logged and left out.

    Raises InvalidInput if the file has another format or no rows.
    """
    readers = {".csv": _csv_columns, ".jsonl": _jsonl_columns, ".npz": _npz_columns, ".parquet": _parquet_columns}
    suffix = path.with_suffix("").suffix if path.suffix in {".gz", ".bz2"} else path.suffix
    if suffix.lower() not in readers:
        raise InvalidInput(f"expected a file {', '.join(f'*{each}' for each in readers)}, got {path}; convert it")
    name = issues.relative_path(path)
    read = partial(readers[suffix.lower()], issues=issues)
    table = issues.try_read(f"a {suffix} file", read, path)
    if table is None:
        raise InvalidInput(issues.errors[-1])
    if len({len(column) for column in table.columns.values()}) > 1:
        sizes = ", ".join(f"{key} {len(column)}" for key, column in table.columns.items())
        raise InvalidInput(f"{name}: expected columns of one length, got {sizes}; write the file again")
    if len(table) == 0:
        raise InvalidInput(f"{name}: expected rows, found none; write the file again")
    return table


def _csv_columns(path: Path, issues: IssueLog) -> Columns:
    table = read_csv(path, issues, has_header=True)
    if table.rows and len(table.header) != len(table.rows[0][1]):
        raise ValueError(f"{len(table.header)} names of columns and {len(table.rows[0][1])} fields")
    columns = zip(*(row for _, row in table.rows), strict=True)
    names = [name.strip() for name in table.header]
    if len(set(names)) < len(names):
        raise ValueError("two columns of one name")
    return Columns(table.name, dict(zip(names, columns, strict=False)), [number for number, _ in table.rows])


def _jsonl_columns(path: Path, issues: IssueLog) -> Columns:
    name = issues.relative_path(path)
    rows: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(read_decompressed(path).decode("utf-8-sig").split("\n"), 1):
        try:
            row = json.loads(line) if line.strip() else None
        except json.JSONDecodeError as error:
            issues.error(f"{name} line {number}: expected a JSON object, got {error}; fix it")
            continue
        if isinstance(row, dict):
            rows.append((number, row))
        elif row is not None:
            issues.error(f"{name} line {number}: expected a JSON object, got a {type(row).__name__}; fix it")
    names = dict.fromkeys(key for _, row in rows for key in row)
    columns = {key: [row.get(key) for _, row in rows] for key in names}
    return Columns(name, columns, [number for number, _ in rows])


def _npz_columns(path: Path, issues: IssueLog) -> Columns:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return Columns(issues.relative_path(path), {key: stored[key] for key in stored.files})


def _parquet_columns(path: Path, issues: IssueLog) -> Columns:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise InvalidInput(
            "a parquet file needs the package pyarrow, found none; run pip install 'vpdr[hf]'"
        ) from error
    try:
        table = parquet.ParquetFile(path).read()
    except ArrowException as error:
        raise ValueError(str(error)) from error
    columns = {key: table.column(key).to_numpy() for key in table.column_names}
    return Columns(issues.relative_path(path), columns)
