"""AG News from csv files in any of the layouts and encodings in which they are published."""

import csv
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mode

import numpy as np

from vpdr.data.benchmark import SplitConfig
from vpdr.data.spec import BenchmarkSpec, DomainSpec, IssueLog, RawDomain, find_file, read_decompressed

_LABEL_COLUMNS = ("label", "class", "class index", "class_index", "category", "labels")
_TEXT_COLUMNS = ("title", "description", "text", "content")
_FILE_PATTERNS = ("{}", "ag*{}*", "*{}*")  # the most likely first
_NUM_CLASSES = 4
_MIN_REPEATS_OF_NOTE = 10  # a column whose values repeat this often on average is not text
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class CsvTable:
    """Rows of equal width, each with the number of its last line; the header is empty if there is none."""

    name: str
    header: list[str]
    rows: list[tuple[int, list[str]]]


def read_agnews(root: Path, domain: str, issues: IssueLog) -> RawDomain | None:
    """The training and the test file as one domain, the test rows last."""
    parts = []
    for part in ("train", "test"):
        patterns = tuple(f"{pattern.format(part)}.csv{suffix}" for pattern in _FILE_PATTERNS for suffix in ("", ".gz"))
        path = find_file(root, patterns)
        if path is None:
            issues.error(
                f"{domain}: expected a file *{part}*.csv or .csv.gz below {issues.root}, found none; "
                "`vpdr data list` says where to get it"
            )
        elif (table := issues.try_read("a csv file", partial(_read_csv, issues=issues), path)) is not None:
            parts.append(_extract_articles(table, issues))
    if len(parts) < 2 or not all(parts):
        return None
    articles = [*parts[0], *parts[1]]
    labels = np.array([label for label, _ in articles], dtype=np.int64)
    lowest = 0 if labels.min() == 0 else 1
    return RawDomain(labels=labels - lowest, content=tuple(text for _, text in articles), test_size=len(parts[1]))


def _extract_articles(table: CsvTable, issues: IssueLog) -> list[tuple[int, str]]:
    """Labels as they are written in the file, and texts; rows without one of them are logged and left out."""
    label, columns = _find_columns(table, issues)
    articles = []
    for number, row in table.rows:
        line = f"{table.name} line {number}"
        text = " ".join(part for column in columns if (part := row[column].strip()))
        if not row[label].strip().isdecimal() or not 0 <= int(row[label]) <= _NUM_CLASSES:
            issues.error(f"{line}: expected a label 0-3 or 1-4, got {row[label][:20]!r}; fix it")
        elif not text:
            issues.error(f"{line}: expected a text, got none; fix or remove it")
        else:
            articles.append((int(row[label]), text))
    if not articles:
        issues.error(f"{table.name}: expected rows with a label and a text, found none; download it again")
    return articles


def _find_columns(table: CsvTable, issues: IssueLog) -> tuple[int, list[int]]:
    """The column of the label and the columns of the texts."""
    if table.header:
        names = [name.strip().lower() for name in table.header]
        label = next((names.index(name) for name in _LABEL_COLUMNS if name in names), 0)
        texts = [names.index(name) for name in _TEXT_COLUMNS if name in names]
        return label, texts or [column for column in range(len(names)) if column != label]
    texts = list(range(1, len(table.rows[0][1]) if table.rows else 0))
    for column in texts[1:]:
        values = {row[column] for _, row in table.rows}
        if len(values) * _MIN_REPEATS_OF_NOTE < len(table.rows):
            issues.warning(
                f"{table.name}: column {column + 1} has only {len(values)} different values; "
                "it is taken for a note and left out of the texts"
            )
            texts.remove(column)
    return 0, texts


def _read_csv(path: Path, issues: IssueLog) -> CsvTable:
    """All rows of the most common width; the others are logged and left out."""
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
    if rows and not any(field.strip().isdecimal() for field in rows[0][1]):
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


# Four topics of short news texts.
AGNEWS = BenchmarkSpec(
    name="agnews",
    title="AG News",
    modality="text",
    domains=(DomainSpec(name="agnews", title="AG News", train=(30_000,) * 4, test=(1_900,) * 4),),
    class_names=("world", "sports", "business", "sci/tech"),
    expected_files="a train and a test file, *.csv or *.csv.gz, with or without a header: "
    "label (0-3 or 1-4) and text, or label, title and description",
    download_info="https://github.com/mhjabreel/CharCnn_Keras (data/ag_news_csv), or fancyzhx/ag_news on the hub",
    licence="for research and other non-commercial use",
    split_config=SplitConfig(skew="pooled", clients=20),
    allow_flip=False,
    read_domain=read_agnews,
)
