"""AG News from csv files in any of the shapes in which they go around."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from vpdr.data.findings import Findings
from vpdr.data.found import Found
from vpdr.data.readers.search import find_file
from vpdr.data.readers.tables import Table, read_table

_LABELS = ("label", "class", "class index", "class_index", "category", "labels")
_TEXTS = ("title", "description", "text", "content")
_NAMES = ("{}", "ag*{}*", "*{}*")  # of the files, the likeliest first
_CLASSES = 4
_NOTE = 10  # a column whose values each come back this often, on average, is no text


@dataclass(frozen=True, slots=True)
class Articles:
    """One file: numbers as they stand in it, and texts."""

    labels: list[int]
    texts: list[str]


def read_news(root: Path, domain: str, findings: Findings) -> Found | None:
    """The training and the test file as one domain, the test rows last."""
    parts = []
    for part in ("train", "test"):
        names = tuple(f"{name}.csv{packed}" for name in _NAMES for packed in ("", ".gz"))
        path = find_file(root, tuple(name.format(part) for name in names))
        if path is None:
            findings.broken(
                f"{domain}: expected a file *{part}*.csv or .csv.gz below {findings.root}, found none; "
                "`vpdr data list` says where to get it"
            )
            continue
        table = findings.attempt("a csv file", partial(read_table, findings=findings), path)
        if table is not None:
            parts.append(_articles(table, findings))
    if len(parts) < 2:
        return None
    if not all(part.labels for part in parts):
        return None
    numbers = np.array(parts[0].labels + parts[1].labels, dtype=np.int64)
    first = 0 if numbers.min() == 0 else 1
    return Found(
        labels=numbers - first, content=tuple(parts[0].texts + parts[1].texts), tested=len(parts[1].labels)
    )


def _articles(table: Table, findings: Findings) -> Articles:
    """Labels and texts; rows that have none are named and left out."""
    label, columns = _columns(table, findings)
    articles = Articles([], [])
    for number, row in table.rows:
        place = f"{table.name} line {number}"
        text = " ".join(part for column in columns if (part := row[column].strip()))
        if not row[label].strip().isdecimal() or not 0 <= int(row[label]) <= _CLASSES:
            findings.broken(f"{place}: expected a label 0-3 or 1-4, got {row[label][:20]!r}; mend it")
        elif not text:
            findings.broken(f"{place}: expected a text, got none; mend it or take it out")
        else:
            articles.labels.append(int(row[label]))
            articles.texts.append(text)
    if not articles.labels:
        findings.broken(f"{table.name}: expected rows with a label and a text, found none; fetch it again")
    return articles


def _columns(table: Table, findings: Findings) -> tuple[int, list[int]]:
    """Where the label and the texts stand."""
    if table.header:
        names = [name.strip().lower() for name in table.header]
        label = next((names.index(name) for name in _LABELS if name in names), 0)
        texts = [names.index(name) for name in _TEXTS if name in names]
        return label, texts or [column for column in range(len(names)) if column != label]
    texts = list(range(1, table.width))
    for column in texts[1:]:
        values = {row[column] for _, row in table.rows}
        if len(values) * _NOTE < len(table.rows):
            findings.remark(
                f"{table.name}: column {column + 1} has only {len(values)} different values; "
                "it is taken for a note and left out of the texts"
            )
            texts.remove(column)
    return 0, texts
