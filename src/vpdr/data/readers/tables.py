"""Rows of a csv file, with the odd letters and broken rows that such files have."""

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from vpdr.data.findings import Findings, opened

_OTHER_ENCODINGS = ("cp1252", "latin-1")  # the second reads everything
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal width, each with the line on which it ends; the header is empty where there is none."""

    name: str
    header: list[str]
    rows: list[tuple[int, list[str]]]

    @property
    def width(self) -> int:
        """How many columns."""
        return len(self.rows[0][1]) if self.rows else 0


def read_table(path: Path, findings: Findings) -> Table:
    """All rows that are as wide as most; the others are named and left out."""
    name = findings.place(path)
    reader = csv.reader(_lines(path, name, findings))
    rows: list[tuple[int, list[str]]] = []
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            findings.broken(f"{name} line {reader.line_num}: expected a row, got {error}; mend it")
            continue
        if row:
            rows.append((reader.line_num, row))
    header = []
    if rows and not any(field.strip().isdecimal() for field in rows[0][1]):
        header = rows.pop(0)[1]
    return Table(name, header, _even(rows, name, findings))


def _even(rows: list[tuple[int, list[str]]], name: str, findings: Findings) -> list[tuple[int, list[str]]]:
    widths = Counter(len(row) for _, row in rows)
    usual = widths.most_common(1)[0][0] if widths else 0
    if usual == 1:
        raise ValueError("one column")
    for number, row in rows:
        if len(row) != usual:
            findings.broken(f"{name} line {number}: expected {usual} columns, got {len(row)}; mend it")
    return [(number, row) for number, row in rows if len(row) == usual]


def _lines(path: Path, name: str, findings: Findings) -> list[str]:
    """Each line on its own: one odd line must not spoil the letters of all others."""
    content = opened(path)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        findings.remark(f"{name}: expected UTF-8, got UTF-16; it was read as that")
        return content.decode("utf-16").splitlines(keepends=True)
    lines, odd, lost = [], [], []
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        text, encoding = _decoded(line)
        lines.append(text + "\n")
        odd += [(number, encoding)] if encoding else []
        lost += [number] if _REPLACEMENT in text else []
    if odd:
        findings.remark(
            f"{name}: expected UTF-8, got something else on {len(odd)} lines, the first of them line "
            f"{odd[0][0]}; they were read as {' or '.join(sorted({encoding for _, encoding in odd}))}"
        )
    if lost:
        findings.remark(
            f"{name}: {len(lost)} lines have letters that were lost before (U+FFFD), "
            f"the first of them line {lost[0]}"
        )
    return lines


def _decoded(line: bytes) -> tuple[str, str]:
    """A line's text, and its encoding where that is not UTF-8."""
    try:
        return line.decode("utf-8"), ""
    except UnicodeDecodeError:
        for encoding in _OTHER_ENCODINGS:
            try:
                return line.decode(encoding), encoding
            except UnicodeDecodeError:
                continue
    raise ValueError("unreadable letters")
