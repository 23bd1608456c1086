"""The comparison on a terminal: a method has one line, and omitted columns are named."""

import pytest

from tests.unit.report.report_cases import NOTHING, privacy, record, summary
from vpdr.cli import run as run_command
from vpdr.cli.output import PipeSafeConsole
from vpdr.report.stats import ComparisonSummary

LONG = "vpdr-random-8"


def runs() -> list:
    """Methods with long names, wide intervals and every metric."""
    labelled = []
    for seed in (0, 1):
        labelled.append(("", "local", record(seed, 0.6 + seed / 10, statement=NOTHING)))
        strict = privacy("conditional", epsilon=0.5)
        labelled.append(("", LONG, record(seed, 0.5 + seed / 5, nearest=0.7, fused=0.8, statement=strict)))
    return labelled


def printed_lines(width: int, capsys, monkeypatch, tmp_path, setting: str = "") -> list[str]:
    monkeypatch.setattr(run_command.output, "console", PipeSafeConsole(soft_wrap=True, highlight=False, width=width))
    settings = {setting: summary(runs())[""]}
    comparison = ComparisonSummary(name="", title="", seeds=(0, 1), baseline="local", settings=settings)
    run_command.print_comparison(comparison, tmp_path)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 130])
def test_each_method_has_one_line(width: int, capsys, monkeypatch, tmp_path) -> None:
    lines = printed_lines(width, capsys, monkeypatch, tmp_path)
    assert lines[0].startswith("method")
    assert lines[1].startswith("local")
    assert lines[2].startswith(LONG)
    assert all(len(line) <= width for line in lines[:3])  # a terminal wraps the sentences below


@pytest.mark.parametrize(("width", "omitted"), [(120, ""), (100, "relMSE"), (80, "own, nearest, relMSE")])
def test_omitted_columns_are_named(width: int, omitted: str, capsys, monkeypatch, tmp_path) -> None:
    lines = printed_lines(width, capsys, monkeypatch, tmp_path)
    assert lines[3] == (f"not shown: {omitted} (the report has all)" if omitted else "")


def test_the_most_important_columns_are_kept(capsys, monkeypatch, tmp_path) -> None:
    lines = printed_lines(20, capsys, monkeypatch, tmp_path)
    assert lines[0] == "method         "[: len(LONG)].rstrip().ljust(len(LONG))
    wide = printed_lines(80, capsys, monkeypatch, tmp_path)
    assert wide[0].split() == ["method", "ε", "guarantee", "all", "fused", "all", "−", "local"]


def test_the_title_of_a_setting_is_printed(capsys, monkeypatch, tmp_path) -> None:
    assert printed_lines(80, capsys, monkeypatch, tmp_path, "domains")[0].strip() == "domains"
