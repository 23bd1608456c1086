"""AG News in the layouts in which its csv files are published."""

import numpy as np
import pytest

from tests.unit.data.format_files import write_compressed
from vpdr.data import BENCHMARK_SPECS
from vpdr.validation import InvalidInput

NEWS = BENCHMARK_SPECS["agnews"]
ROWS = [(2, "Oil rises", "Prices, they say, rose."), (3, "A chip", 'It is "new".'), (0, "Vote", "x"), (1, "Cup", "y")]


def quoted(text):
    return '"' + str(text).replace('"', '""') + '"'


def csv_text(rows, header=""):
    return header + "".join(",".join(map(quoted, row)) + "\n" for row in rows)


def write_files(root, train, test=None, names=("train.csv", "test.csv"), encoding="utf-8"):
    for name, text in zip(names, (train, test or train), strict=True):
        write_compressed(root / name, text if isinstance(text, bytes) else text.encode(encoding))
    return root


def joined_texts(rows=ROWS):
    return tuple(" ".join(map(str, row[1:])) for row in rows)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("header", ["", "Class Index,Title,Description\n", "label,title,description\n"])
@pytest.mark.parametrize("names", [("train.csv", "test.csv"), ("ag/ag_news_train.csv.gz", "ag/ag_news_test.csv.gz")])
def test_label_title_and_description(tmp_path, first, header, names):
    rows = [(label + first, *texts) for label, *texts in ROWS]
    write_files(tmp_path, csv_text(rows, header), names=names)
    (domain,) = NEWS.load(tmp_path).text_domains
    assert domain.texts == joined_texts() * 2
    assert domain.labels.tolist() == [2, 3, 0, 1] * 2
    assert domain.official_test.tolist() == [4, 5, 6, 7]
    assert domain.full_train_size == 120_000


@pytest.mark.parametrize("header", ["", "label,text\n"])
def test_label_and_text(tmp_path, header):
    write_files(tmp_path, csv_text([(row[0], row[2]) for row in ROWS], header))
    assert NEWS.load(tmp_path).text_domains[0].texts[:2] == ("Prices, they say, rose.", 'It is "new".')


def test_a_header_in_another_order(tmp_path):
    write_files(tmp_path, csv_text([(f"t{n}", n) for n in range(4)], "text,label\n"))
    (domain,) = NEWS.load(tmp_path).text_domains
    assert domain.texts[:4] == ("t0", "t1", "t2", "t3")
    assert domain.labels[:4].tolist() == [0, 1, 2, 3]


def test_a_column_of_notes_is_no_text_and_is_a_warning(tmp_path):
    rows = [(n % 4, f"text {n}", "origin a" if n % 2 else "origin b") for n in range(40)]
    benchmark = NEWS.load(write_files(tmp_path, csv_text(rows)))
    assert benchmark.text_domains[0].texts[:2] == ("text 0", "text 1")
    assert any("column 3 has only 2 different values" in line for line in benchmark.warnings)


def test_other_encodings_are_read_line_by_line_with_a_warning(tmp_path):
    lines = ["0,Zürich in UTF-8\n".encode(), "1,Köln in cp1252 — long\n".encode("cp1252"), b"2,a\x81b\n", b"3,x\n"]
    benchmark = NEWS.load(write_files(tmp_path, b"".join(lines), "".join(f"{n},x\n" for n in range(4))))
    assert benchmark.text_domains[0].texts[:3] == ("Zürich in UTF-8", "Köln in cp1252 — long", "a\x81b")
    (line,) = [line for line in benchmark.warnings if "UTF-8" in line]
    assert line.startswith("train.csv: expected UTF-8, got something else on 2 lines")
    assert "line 2; they were read as cp1252 or latin-1" in line


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_no_text(tmp_path, encoding):
    write_files(tmp_path, csv_text(ROWS), encoding=encoding)
    assert NEWS.load(tmp_path).text_domains[0].texts == joined_texts() * 2


def test_characters_that_were_lost_before_are_a_warning(tmp_path):
    benchmark = NEWS.load(write_files(tmp_path, csv_text([*ROWS, (0, "a\ufffdb", "c")])))
    assert any("lost before" in line and "line 5" in line for line in benchmark.warnings)


def test_invalid_rows_are_named_and_the_check_goes_on(tmp_path):
    rows = [*ROWS, (7, "bad", "label"), ("x", "no", "label"), (1, "", " "), (1, "three", "are", "enough")]
    report = NEWS.check(write_files(tmp_path, csv_text(rows), csv_text(ROWS)))
    assert [line.split(":")[0] for line in report.issues if line.startswith("train.csv")] == [
        "train.csv line 8",
        "train.csv line 5",
        "train.csv line 6",
        "train.csv line 7",
    ]
    assert [count.total for count in report.counts] == [4, 4]
    with pytest.raises(InvalidInput, match=r"train.csv line 8: expected 3 columns, got 4.*\(and 3 more\)"):
        NEWS.load(tmp_path)


def test_a_quote_that_is_never_closed_is_named(tmp_path):
    text = csv_text(ROWS) + '1,"never closed\n' + "2,more,text\n" * 20_000
    issues = NEWS.check(write_files(tmp_path, text, csv_text(ROWS))).issues
    assert any(line.startswith("train.csv line") for line in issues)


@pytest.mark.parametrize("content", [b"", b"only words\n", b"\x1f\x8b\x08broken"])
def test_a_file_that_is_no_csv_table_is_one_line(tmp_path, content):
    write_files(tmp_path, content, csv_text(ROWS))
    issues = NEWS.check(tmp_path).issues
    assert issues
    with pytest.raises(InvalidInput):
        NEWS.load(tmp_path)


def test_a_missing_part_is_named(tmp_path):
    write_compressed(tmp_path / "train.csv", csv_text(ROWS).encode())
    (line, *_) = NEWS.check(tmp_path).issues
    assert line.startswith("agnews: expected a file *test*.csv")


def test_images_of_a_text_benchmark_are_refused(tmp_path):
    benchmark = NEWS.load(write_files(tmp_path, csv_text(ROWS)))
    with pytest.raises(InvalidInput, match="expected images"):
        _ = benchmark.image_domains
    assert np.array_equal(benchmark.labels, NEWS.load_labels(tmp_path).labels)
