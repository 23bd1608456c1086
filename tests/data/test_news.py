"""AG News in the shapes in which its csv files go around."""

import numpy as np
import pytest

from tests.data.format_files import packed
from vpdr.data import SOURCES
from vpdr.errors import InvalidInput

NEWS = SOURCES["agnews"]
ROWS = [
    (2, "Oil rises", "Prices, they say, rose."),
    (3, "A chip", 'It is "new".'),
    (0, "Vote", "x"),
    (1, "Cup", "y"),
]


def quoted(text):
    return '"' + str(text).replace('"', '""') + '"'


def csv_text(rows, header=""):
    return header + "".join(",".join(map(quoted, row)) + "\n" for row in rows)


def written(root, train, test=None, names=("train.csv", "test.csv"), encoding="utf-8"):
    for name, text in zip(names, (train, test or train), strict=True):
        packed(root / name, text if isinstance(text, bytes) else text.encode(encoding))
    return root


def joined(rows=ROWS):
    return tuple(" ".join(map(str, row[1:])) for row in rows)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("header", ["", "Class Index,Title,Description\n", "label,title,description\n"])
@pytest.mark.parametrize(
    "names", [("train.csv", "test.csv"), ("ag/ag_news_train.csv.gz", "ag/ag_news_test.csv.gz")]
)
def test_label_title_and_description(tmp_path, first, header, names):
    rows = [(label + first, *texts) for label, *texts in ROWS]
    written(tmp_path, csv_text(rows, header), names=names)
    (domain,) = NEWS.load(tmp_path).texts
    assert domain.texts == joined() * 2
    assert domain.labels.tolist() == [2, 3, 0, 1] * 2
    assert domain.official_test.tolist() == [4, 5, 6, 7]
    assert domain.whole == 120_000


@pytest.mark.parametrize("header", ["", "label,text\n"])
def test_label_and_text(tmp_path, header):
    written(tmp_path, csv_text([(row[0], row[2]) for row in ROWS], header))
    assert NEWS.load(tmp_path).texts[0].texts[:2] == ("Prices, they say, rose.", 'It is "new".')


def test_a_header_in_another_order(tmp_path):
    written(tmp_path, csv_text([(f"t{n}", n) for n in range(4)], "text,label\n"))
    (domain,) = NEWS.load(tmp_path).texts
    assert domain.texts[:4] == ("t0", "t1", "t2", "t3")
    assert domain.labels[:4].tolist() == [0, 1, 2, 3]


def test_a_column_of_notes_is_no_text_and_that_is_told(tmp_path):
    rows = [(n % 4, f"text {n}", "origin a" if n % 2 else "origin b") for n in range(40)]
    benchmark = NEWS.load(written(tmp_path, csv_text(rows)))
    assert benchmark.texts[0].texts[:2] == ("text 0", "text 1")
    assert any("column 3 has only 2 different values" in remark for remark in benchmark.remarks)


def test_odd_letters_are_read_line_by_line_and_told(tmp_path):
    lines = [
        "0,Zürich in UTF-8\n".encode(),
        "1,Köln in cp1252 — long\n".encode("cp1252"),
        b"2,a\x81b\n",
        b"3,x\n",
    ]
    benchmark = NEWS.load(written(tmp_path, b"".join(lines), "".join(f"{n},x\n" for n in range(4))))
    assert benchmark.texts[0].texts[:3] == ("Zürich in UTF-8", "Köln in cp1252 — long", "a\x81b")
    (remark,) = [line for line in benchmark.remarks if "UTF-8" in line]
    assert remark.startswith("train.csv: expected UTF-8, got something else on 2 lines")
    assert "line 2; they were read as cp1252 or latin-1" in remark


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marks_at_the_start_of_a_file_are_no_letters(tmp_path, encoding):
    written(tmp_path, csv_text(ROWS), encoding=encoding)
    assert NEWS.load(tmp_path).texts[0].texts == joined() * 2


def test_letters_that_were_lost_before_are_told(tmp_path):
    benchmark = NEWS.load(written(tmp_path, csv_text([*ROWS, (0, "a\ufffdb", "c")])))
    assert any("lost before" in remark and "line 5" in remark for remark in benchmark.remarks)


def test_broken_rows_are_named_and_the_check_goes_on(tmp_path):
    odd = [*ROWS, (7, "bad", "label"), ("x", "no", "label"), (1, "", " "), (1, "three", "are", "enough")]
    checkup = NEWS.check(written(tmp_path, csv_text(odd), csv_text(ROWS)))
    assert [line.split(":")[0] for line in checkup.findings if line.startswith("train.csv")] == [
        "train.csv line 8",
        "train.csv line 5",
        "train.csv line 6",
        "train.csv line 7",
    ]
    assert [count.total for count in checkup.counts] == [4, 4]
    with pytest.raises(InvalidInput, match=r"train.csv line 8: expected 3 columns, got 4.*\(and 3 more\)"):
        NEWS.load(tmp_path)


def test_a_quote_that_is_never_closed_is_named(tmp_path):
    text = csv_text(ROWS) + '1,"never closed\n' + "2,more,text\n" * 20_000
    findings = NEWS.check(written(tmp_path, text, csv_text(ROWS))).findings
    assert any(line.startswith("train.csv line") for line in findings)


@pytest.mark.parametrize("content", [b"", b"only words\n", b"\x1f\x8b\x08broken"])
def test_a_file_that_is_no_table_is_one_line(tmp_path, content):
    written(tmp_path, content, csv_text(ROWS))
    findings = NEWS.check(tmp_path).findings
    assert findings
    with pytest.raises(InvalidInput):
        NEWS.load(tmp_path)


def test_a_missing_half_is_named(tmp_path):
    packed(tmp_path / "train.csv", csv_text(ROWS).encode())
    (line, *_) = NEWS.check(tmp_path).findings
    assert line.startswith("agnews: expected a file *test*.csv")


def test_pictures_of_texts_are_refused(tmp_path):
    benchmark = NEWS.load(written(tmp_path, csv_text(ROWS)))
    with pytest.raises(InvalidInput, match="expected pictures"):
        _ = benchmark.pictures
    assert np.array_equal(benchmark.labels, NEWS.roll(tmp_path).labels)
