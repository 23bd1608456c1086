"""Figures and what they draw."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib
import pytest

from tests.unit.report.report_cases import NOTHING, OPEN, privacy, record, summary, trial
from vpdr.report.figures import (
    BASELINE_COLOUR,
    budget_curves,
    inline_svg,
    method_styles,
    plot_accuracy_by_client,
    plot_accuracy_by_round,
    plot_budgets,
    plot_final_accuracy,
    plot_noise_to_signal,
)
from vpdr.report.stats import (
    accuracy_curve,
    epsilon_curve,
    final_accuracy_by_client,
    group_by_setting,
    mean_curve,
    noise_to_signal_ratios,
)

STYLES = method_styles(["local", "none", "vpdr-1", "strict-8"], "local")


def test_members_of_a_family_share_a_colour() -> None:
    styles = method_styles(["local", "igpp-1", "vpdr-1", "igpp-8", "igpp-dcr"], "local")
    assert styles["igpp-1"].colour == styles["igpp-8"].colour != styles["vpdr-1"].colour
    assert styles["igpp-1"].linestyle != styles["igpp-8"].linestyle
    assert styles["local"].colour == BASELINE_COLOUR
    styles = method_styles(("igpp-0.5", "vpp-random", "fed2", ""), None)
    assert [style.family for style in styles.values()] == ["igpp", "vpp-random", "fed2", ""]


def test_final_accuracy_shows_intervals_and_the_baseline() -> None:
    figure = plot_final_accuracy(summary(trial())["apart"], "local", STYLES)
    own, everything, _ = figure.axes
    assert own.get_title() == "own classes"
    dashed = [line.get_xdata()[0] for axes in figure.axes for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == pytest.approx([60, 31, 31])
    spans = [tuple(line.get_xdata()) for line in everything.lines if len(line.get_xdata()) == 2]
    assert spans[0] == pytest.approx((28.516, 33.484), abs=1e-3)
    assert [label.get_text() for label in own.get_yticklabels()] == list(STYLES)


def test_a_metric_that_no_run_has_gets_no_panel() -> None:
    runs = [("", "local", record(s, 0.6, statement=NOTHING)) for s in (0, 1)]
    assert len(plot_final_accuracy(summary(runs)[""], "local", STYLES).axes) == 2


def test_values_of_curves() -> None:
    runs = group_by_setting(trial())["apart"]
    curves = [accuracy_curve(each, "all.framework") for each in runs["local"]]
    assert curves[1].rounds == (1, 2)
    assert mean_curve(curves).values == pytest.approx((31, 31))
    assert accuracy_curve(runs["local"][0], "all.nearest_cosine").rounds == ()
    assert mean_curve([]).rounds == ()
    assert final_accuracy_by_client(runs["vpdr-1"], "own") == pytest.approx({"north": 51, "south": 51})


def test_epsilon_ends_at_the_budget_and_is_unknown_without_noise() -> None:
    assert epsilon_curve([record(0, 0.5, statement=privacy(epsilon=8))]).values == (0, 8, 8)
    assert epsilon_curve([record(0, 0.5, statement=OPEN)]).rounds == ()
    assert budget_curves({"local": [record(0, 0.5, statement=NOTHING)]}) == {}
    groups = budget_curves(
        {"a": [record(0, 0.5)], "b": [record(0, 0.5)], "c": [record(0, 0.5, statement=privacy(epsilon=8))]}
    )
    assert [list(curves.values()) for curves in groups.values()] == [[["a", "b"]], [["c"]]]


def test_infinite_ratios_are_counted_and_left_out() -> None:
    ratios = noise_to_signal_ratios([record(0, 0.5, ratio=None), record(1, 0.5, ratio=3.0)])
    assert (ratios.mean, ratios.num_infinite, ratios.num_releases) == (3.0, 4, 8)
    assert noise_to_signal_ratios([record(0, 0.5, statement=NOTHING)]).num_releases == 0


def test_svg_is_text_with_ids_of_its_own_and_no_date() -> None:
    runs = group_by_setting(trial())["apart"]
    first, second = (
        inline_svg(plot_accuracy_by_client(runs, ["own", "all"]), name, 'a "b" <c>') for name in ("one", "two")
    )
    root = ET.fromstring(first)
    assert root.attrib["aria-label"] == 'a "b" <c>'
    ids = [
        {each.attrib["id"] for each in ET.fromstring(text).iter() if "id" in each.attrib} for text in (first, second)
    ]
    assert not ids[0] & ids[1]
    assert "north" in first
    assert "<metadata" not in first
    assert "<image" not in first


def test_drawing_does_not_change_the_users_settings() -> None:
    before = dict(matplotlib.rcParams)
    runs = group_by_setting(trial())["apart"]
    inline_svg(plot_noise_to_signal(runs, STYLES), "n", "n")
    inline_svg(plot_accuracy_by_round(runs, "own.framework", "local", STYLES), "r", "r")
    assert dict(matplotlib.rcParams) == before


def test_users_settings_do_not_change_a_figure() -> None:
    runs = group_by_setting(trial())["apart"]
    plain = inline_svg(plot_budgets(budget_curves(runs), STYLES), "b", "b")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "savefig.bbox": "tight"}):
        assert inline_svg(plot_budgets(budget_curves(runs), STYLES), "b", "b") == plain


def test_many_budgets_and_clients_still_fit() -> None:
    many = {f"igpp-{e}": [record(0, 0.5, statement=privacy(epsilon=e))] for e in (1, 2, 4, 8)}
    styles = method_styles(list(many), None)
    assert len([axes for axes in plot_budgets(budget_curves(many), styles).axes if axes.get_visible()]) == 4
    wide = replace(record(0, 0.5), clients=tuple(f"client {i}" for i in range(20)))
    inline_svg(plot_accuracy_by_client({"igpp-1": [wide]}, ["own"]), "c", "c")
