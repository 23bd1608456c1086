"""Tables: their texts, and the raw numbers behind them."""

import csv
import io
from dataclasses import replace

import pytest

from tests.unit.report.report_cases import NOTHING, OPEN, privacy, record, summary, trial
from vpdr.report.format import duration, join_and, points_with_interval, seeds_text, signed_one_decimal, three_digits
from vpdr.report.stats import interval, run_metrics
from vpdr.report.tables import Table, comparison_table

SHOWN = (
    *("method", "epsilon", "level", "own.framework", "all.framework", "all.nearest_cosine"),
    *("difference.all.framework", "relative_error", "overlap"),
)


def test_the_columns_and_texts_of_a_comparison() -> None:
    table = comparison_table(summary(trial())["apart"], "local")
    assert table.select_columns(SHOWN).to_markdown() == (
        "| Method | ε budget | Guarantee | Own classes, % | All classes, % | Nearest prototype, % "
        "| All − local, points | relMSE | Overlap (chance) |\n"
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| local | — | nothing released | 60.0 ± 0.0 | 31.0 ± 2.5 | — | — | — | — |\n"
        "| none | — | not private | 60.0 ± 0.0 | 30.0 ± 0.0 | 90.0 ± 0.0 | −1.0 (−3.5 to +1.5) | 50 | — |\n"
        "| vpdr-1 | 1 | conditional | 51.0 ± 2.5 | 20.0 ± 0.0 | 10.0 ± 0.0 | −11.0 (−13.5 to −8.5) | 50 "
        "| 0.31 (0.20) |\n"
        "| strict-8 | 8 | proved | 60.0 ± 0.0 | 31.0 ± 2.5 | 80.0 ± 0.0 | 0.0 (0.0 to 0.0) | 50 | — |\n"
    )


def test_the_nearest_prototype_is_compared_with_the_baseline_predictor() -> None:
    table = comparison_table(summary(trial())["apart"], "local")
    column = [column.key for column in table.columns].index("difference.all.nearest_cosine")
    assert [row[column].text for row in table.rows] == [
        "—",
        "+59.0 (+56.5 to +61.5)",
        "−21.0 (−23.5 to −18.5)",
        "+49.0 (+46.5 to +51.5)",
    ]


def test_own_and_all_classes_are_both_shown_where_they_are_the_same() -> None:
    table = comparison_table(summary(trial())["same"], "local")
    for row in table.rows:
        assert row[3].text == row[4].text != "—"


def test_one_seed_has_no_interval() -> None:
    runs = [("", "local", record(0, 0.6, statement=NOTHING)), ("", "igpp", record(0, 0.65, nearest=0.5))]
    first, second = (
        comparison_table(summary(runs)[""], "local").select_columns(("own.framework", "difference.own.framework")).rows
    )
    assert [cell.text for cell in first] == ["60.0", "—"]
    assert [cell.text for cell in second] == ["65.0", "+5.0"]
    assert second[0].values == (0.65, None, None)


def test_methods_without_anchors_have_no_nearest_prototype() -> None:
    runs = [("", "local", record(s, 0.6, statement=NOTHING)) for s in (0, 1)]
    runs += [("", "mpft", record(s, 0.6)) for s in (0, 1)]
    table = comparison_table(summary(runs)[""], "local")
    assert {row[5].text for row in table.rows} == {"—"}


@pytest.mark.parametrize("baseline", [None, "absent"])
def test_without_a_baseline_there_are_no_differences(baseline: str | None) -> None:
    table = comparison_table(summary(trial(), baseline)["same"], baseline)
    assert not any(column.key.startswith("difference") for column in table.columns)
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_csv_has_raw_numbers_and_leaves_gaps_empty() -> None:
    table = comparison_table(summary(trial())["apart"], "local")
    local, none, vpdr, strict = csv.DictReader(io.StringIO(table.to_csv()))
    assert local["all.nearest_cosine.mean"] == local["epsilon"] == local["difference.all.framework.low"] == ""
    assert none["level"] == "not private"
    assert float(vpdr["own.framework.mean"]) == pytest.approx(0.51)
    assert float(vpdr["overlap.chance"]) == pytest.approx(0.2)
    assert float(strict["epsilon"]) == 8


def test_the_fused_predictor_has_columns_where_any_run_has_it() -> None:
    runs = [("", "local", record(s, 0.5, statement=NOTHING)) for s in (0, 1)]
    runs += [("", "strict", record(s, 0.6, nearest=0.7, fused=0.8)) for s in (0, 1)]
    table = comparison_table(summary(runs)[""], "local")
    shown = table.select_columns(("all.fused", "difference.all.fused"))
    assert shown.labels == ("Fused, %", "Fused − local, points")
    assert [[cell.text for cell in row] for row in shown.rows] == [["—", "—"], ["80.0 ± 0.0", "+30.0 (+30.0 to +30.0)"]]
    assert "| Fused, % |" in table.to_markdown()
    without = comparison_table(summary(trial())["apart"], "local")
    assert not any("fused" in column.key for column in without.columns)


def test_the_fused_predictor_is_compared_with_the_same_rule() -> None:
    """What a client gains by sharing, and not what it gains by a better rule."""
    runs = [("", "local", record(s, 0.5, fused=0.7, statement=NOTHING)) for s in (0, 1)]
    runs += [("", "strict", record(s, 0.6, nearest=0.7, fused=0.8)) for s in (0, 1)]
    table = comparison_table(summary(runs)[""], "local")
    shown = table.select_columns(("difference.all.nearest_cosine", "difference.all.fused"))
    assert [cell.text for cell in shown.rows[1]] == ["+20.0 (+20.0 to +20.0)", "+10.0 (+10.0 to +10.0)"]


def test_a_pipe_in_a_name_does_not_break_the_markdown() -> None:
    runs = [("", "a|b", record(s, 0.6, statement=statement)) for s, statement in ((0, OPEN), (1, OPEN))]
    line = comparison_table(summary(runs, None)[""], None).to_markdown().splitlines()[-1]
    assert line.startswith("| a\\|b |")


def test_texts_of_numbers() -> None:
    assert [three_digits(x) for x in (None, float("inf"), 8e-14, 0.7279, 13.04, 13059.1)] == [
        *("—", "—", "0", "0.728", "13", "13,059")
    ]
    assert [signed_one_decimal(x) for x in (-0.04, 0.06, -3.14)] == ["0.0", "+0.1", "−3.1"]
    assert points_with_interval(interval([0.1, 0.1])) == "+10.0 (+10.0 to +10.0)"
    assert [duration(x) for x in (3.21, 61.0, 7260.0)] == ["3.2 s", "1 min 1 s", "2 h 1 min"]
    assert [seeds_text(x) for x in ([0, 1, 2], [0, 1], [3], [0, 2, 5])] == ["0..2", "0,1", "3", "0,2,5"]
    assert [join_and(x) for x in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_a_budget_is_shown_only_where_something_private_was_released() -> None:
    runs = [("", str(i), record(0, 0.5, statement=s)) for i, s in enumerate((NOTHING, OPEN, privacy(epsilon=0.5)))]
    table = comparison_table(summary(runs, None)[""], None)
    assert [row[1].text for row in table.rows] == ["—", "—", "0.5"]


def test_the_error_of_a_comparison_is_that_of_the_last_release() -> None:
    """Earlier ones may have been stages to it, as in `rapp`."""
    run, rounds = record(0, 0.6), []
    for error, each in zip((100.0, 4.0), run.rounds, strict=True):
        clients = {name: replace(client, release={"relative_error": error}) for name, client in each.clients.items()}
        rounds.append(replace(each, clients=clients))
    assert run_metrics(replace(run, rounds=tuple(rounds)))["relative_error"] == 4


def test_texts_in_html_are_escaped_and_the_first_column_is_a_heading() -> None:
    html = Table.from_texts(["a<b", "c"], [["<x>", "1 & 2"]]).to_html("text")
    assert '<table class="text">' in html
    assert '<th scope="col">a&lt;b</th><th scope="col">c</th>' in html
    assert '<tr><th scope="row">&lt;x&gt;</th><td>1 &amp; 2</td></tr>' in html


def test_fields_have_no_headings_and_no_spaces_at_the_end() -> None:
    fields = {"short": "x" * 300, "much longer": "[bold]y"}
    assert Table.from_fields(fields).to_text() == f"short        {'x' * 300}\nmuch longer  [bold]y"


def test_a_narrow_text_table_breaks_cells_and_loses_nothing() -> None:
    text = Table.from_texts(["name", "what"], [["one", "a sentence of many words"]], title="T").to_text(20)
    title, heading, *lines = text.splitlines()
    assert (title.strip(), heading.split()) == ("T", ["name", "what"])
    assert max(map(len, lines)) <= 20
    assert " ".join(" ".join(lines).split()) == "one a sentence of many words"
