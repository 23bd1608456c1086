"""AG News from csv files in any of the layouts and encodings in which they are published."""

from functools import partial
from pathlib import Path

import numpy as np

from vpdr.data.benchmark import SplitConfig
from vpdr.data.spec import BenchmarkSpec, DomainSpec, IssueLog, RawDomain, download_files, find_file
from vpdr.data.tables import CsvTable, read_csv

_LABEL_COLUMNS = ("label", "class", "class index", "class_index", "category", "labels")
_TEXT_COLUMNS = ("title", "description", "text", "content")
_FILE_PATTERNS = ("{}", "ag*{}*", "*{}*")  # the most likely first
_NUM_CLASSES = 4
_MIN_REPEATS_OF_NOTE = 10  # a column whose values repeat this often on average is not text


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
        elif (table := issues.try_read("a csv file", partial(read_csv, issues=issues), path)) is not None:
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
    downloads=download_files(
        "agnews",
        ("https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv",),
        ("train.csv", 29_470_338, "b1a00f826fdfbd249f79597b59e1dc12"),
        ("test.csv", 1_857_427, "d52ea96a97a2d943681189a97654912d"),
    ),
)
