"""Figures and what they draw."""

import xml.etree.ElementTree as ET

import matplotlib
import pytest

from tests.report.report_cases import NOTHING, OPEN, privacy, record, summary, trial
from vpdr.report.accuracy_figures import clients, rounds, standings
from vpdr.report.figures import inline_svg
from vpdr.report.palette import BASELINE, family_of, looks
from vpdr.report.release_figures import budgets, noise, spent
from vpdr.report.series import averaged, by_setting, final_by_client, learning, noise_ratios, spending

LOOKS = looks(["local", "none", "vpdr-1", "strict-8"], "local")


def test_members_of_a_family_share_a_colour() -> None:
    found = looks(["local", "igpp-1", "vpdr-1", "igpp-8", "igpp-dcr"], "local")
    assert found["igpp-1"].colour == found["igpp-8"].colour != found["vpdr-1"].colour
    assert found["igpp-1"].dash != found["igpp-8"].dash
    assert found["local"].colour == BASELINE
    assert [family_of(name) for name in ("igpp-0.5", "vpp-random", "fed2", "")] == [
        "igpp",
        "vpp-random",
        "fed2",
        "",
    ]


def test_the_standings_show_intervals_and_the_baseline() -> None:
    figure = standings(summary(trial())["apart"], "local", LOOKS)
    own, everything, _ = figure.axes
    assert own.get_title() == "own classes"
    dashed = [
        line.get_xdata()[0] for axes in figure.axes for line in axes.lines if line.get_linestyle() == "--"
    ]
    assert dashed == pytest.approx([60, 31, 31])
    spans = [tuple(line.get_xdata()) for line in everything.lines if len(line.get_xdata()) == 2]
    assert spans[0] == pytest.approx((28.516, 33.484), abs=1e-3)
    assert [label.get_text() for label in own.get_yticklabels()] == list(LOOKS)


def test_a_reading_that_nobody_has_gets_no_panel() -> None:
    runs = [("", "local", record(s, 0.6, statement=NOTHING)) for s in (0, 1)]
    assert len(standings(summary(runs)[""], "local", LOOKS).axes) == 2


def test_curves_follow_the_records() -> None:
    runs = by_setting(trial())["apart"]
    curves = [learning(each, "all.framework") for each in runs["local"]]
    assert curves[1].rounds == (1, 2)
    assert averaged(curves).values == pytest.approx((31, 31))
    assert learning(runs["local"][0], "all.nearest_cosine").rounds == ()
    assert averaged([]).rounds == ()
    assert final_by_client(runs["vpdr-1"], "own") == pytest.approx({"north": 51, "south": 51})


def test_spending_ends_at_the_budget_and_is_unknown_without_noise() -> None:
    assert spending([record(0, 0.5, statement=privacy(epsilon=8))]).values == (0, 8, 8)
    assert spending([record(0, 0.5, statement=OPEN)]).rounds == ()
    assert spent({"local": [record(0, 0.5, statement=NOTHING)]}) == {}
    groups = spent(
        {"a": [record(0, 0.5)], "b": [record(0, 0.5)], "c": [record(0, 0.5, statement=privacy(epsilon=8))]}
    )
    assert [list(curves.values()) for curves in groups.values()] == [[["a", "b"]], [["c"]]]


def test_infinite_ratios_are_counted_and_left_out() -> None:
    found = noise_ratios([record(0, 0.5, ratio=None), record(1, 0.5, ratio=3.0)])
    assert (found.mean, found.infinite, found.releases) == (3.0, 4, 8)
    assert noise_ratios([record(0, 0.5, statement=NOTHING)]).releases == 0


def test_svg_is_text_with_ids_of_its_own_and_no_date() -> None:
    runs = by_setting(trial())["apart"]
    first, second = (inline_svg(clients(runs, ["own", "all"]), name, 'a "b" <c>') for name in ("one", "two"))
    root = ET.fromstring(first)
    assert root.attrib["aria-label"] == 'a "b" <c>'
    ids = [
        {each.attrib["id"] for each in ET.fromstring(text).iter() if "id" in each.attrib}
        for text in (first, second)
    ]
    assert not ids[0] & ids[1]
    assert "north" in first
    assert "<metadata" not in first
    assert "<image" not in first


def test_drawing_leaves_no_trace_in_the_users_settings() -> None:
    before = dict(matplotlib.rcParams)
    runs = by_setting(trial())["apart"]
    inline_svg(noise(runs, LOOKS), "n", "n")
    inline_svg(rounds(runs, "own.framework", "local", LOOKS), "r", "r")
    assert dict(matplotlib.rcParams) == before


def test_users_settings_do_not_change_a_figure() -> None:
    runs = by_setting(trial())["apart"]
    plain = inline_svg(budgets(spent(runs), LOOKS), "b", "b")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "savefig.bbox": "tight"}):
        assert inline_svg(budgets(spent(runs), LOOKS), "b", "b") == plain


def test_many_budgets_and_clients_still_fit() -> None:
    many = {f"igpp-{e}": [record(0, 0.5, statement=privacy(epsilon=e))] for e in (1, 2, 4, 8)}
    styles = looks(list(many), None)
    assert len([axes for axes in budgets(spent(many), styles).axes if axes.get_visible()]) == 4
    wide = record(0, 0.5)
    wide["clients"] = [f"client {i}" for i in range(20)]
    inline_svg(clients({"igpp-1": [wide]}, ["own"]), "c", "c")
