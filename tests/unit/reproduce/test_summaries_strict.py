"""The statements of the README about `strict` hold for the committed results."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3] / "results"
RUNS = {"strict": "office_caltech", "strict-digits": "digits", "strict-agnews": "agnews"}
EPSILONS = ("0.5", "1", "2", "4", "8")


def summary(name: str) -> Any:
    return json.loads((ROOT / f"{name}.json").read_text())


def means(name: str, metric: str) -> dict[tuple[str, str], float]:
    """The means of a metric, by point and method."""
    rows = [row for row in summary(name)["lines"] if row["dataset"] == RUNS[name]]
    return {
        (point, row["method"]): row["metrics"][metric]["mean"]
        for row in rows
        if metric in row["metrics"]
        for point in row["points"]
    }


def differences(name: str, second: str) -> dict[str, dict[str, float]]:
    pairs = [pair for pair in summary(name)["pairs"] if pair["dataset"] == RUNS[name]]
    return {pair["point"]: pair["ours"] for pair in pairs if (pair["first"], pair["second"]) == ("rapp", second)}


@pytest.mark.parametrize("name", RUNS)
def test_every_cell_was_run_with_five_seeds(name: str) -> None:
    assert len(summary(name)["seeds"]) >= 5
    skews = ("alpha=0.1", "alpha=0.5", *(["domain"] if name != "strict-agnews" else []))
    cells = {f"{skew}, eps={epsilon}" for skew in skews for epsilon in EPSILONS}
    for metric in ("head", "fused"):
        assert {point for point, method in means(name, metric) if method == "rapp"} == cells
        assert {point for point, method in means(name, metric) if method == "local"} == cells


@pytest.mark.parametrize("name", RUNS)
def test_rapp_has_a_smaller_error_than_accumulated_igpp(name: str) -> None:
    errors = means(name, "relative_error")
    for point, method in errors:
        if method == "rapp":
            assert errors[point, "rapp"] < errors[point, "igpp-accumulated"]


@pytest.mark.parametrize("name", RUNS)
def test_rapp_is_not_worse_than_local_by_more_than_noise(name: str) -> None:
    for difference in differences(name, "local").values():
        assert difference["high"] > 0
        assert difference["mean"] > -0.5


@pytest.mark.parametrize("other", ["local", "igpp", "vpdr"])
@pytest.mark.parametrize("name", RUNS)
def test_clients_that_lack_classes_gain(name: str, other: str) -> None:
    by_point = differences(name, other)
    for epsilon in ("1", "8"):
        assert by_point[f"alpha=0.1, eps={epsilon}"]["low"] > 0


def test_accuracy_on_office() -> None:
    fused, head = means("strict", "fused"), means("strict", "head")
    for epsilon, least in (("1", 82), ("2", 91), ("4", 94)):
        assert fused[f"alpha=0.1, eps={epsilon}", "rapp"] >= least
    assert abs(head["alpha=0.1, eps=1", "local"] - 50) < 3
