"""What README says of `strict`, held against the committed results: whoever runs them again is told."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2] / "results"
RUNS = {"strict": "office_caltech", "strict-digits": "digits", "strict-agnews": "agnews"}
EPSILONS = ("0.5", "1", "2", "4", "8")


def told(name: str) -> Any:
    return json.loads((ROOT / f"{name}.json").read_text())


def measured(name: str, metric: str) -> dict[tuple[str, str], float]:
    """Means by point and method."""
    lines = [line for line in told(name)["lines"] if line["dataset"] == RUNS[name]]
    return {(p, line["method"]): line["metrics"][metric]["mean"]
            for line in lines if metric in line["metrics"] for p in line["points"]}  # fmt: skip


def differences(name: str, second: str) -> dict[str, dict[str, float]]:
    pairs = [pair for pair in told(name)["pairs"] if pair["dataset"] == RUNS[name]]
    return {
        pair["point"]: pair["ours"] for pair in pairs if (pair["first"], pair["second"]) == ("rapp", second)
    }


@pytest.mark.parametrize("name", RUNS)
def test_every_cell_was_run_with_five_seeds(name: str) -> None:
    assert len(told(name)["seeds"]) >= 5
    skews = ("alpha=0.1", "alpha=0.5", *(["domain"] if name != "strict-agnews" else []))
    cells = {f"{skew}, eps={epsilon}" for skew in skews for epsilon in EPSILONS}
    for metric in ("head", "fused"):
        assert {point for point, method in measured(name, metric) if method == "rapp"} == cells
        assert {point for point, method in measured(name, metric) if method == "local"} == cells


@pytest.mark.parametrize("name", RUNS)
def test_uploads_have_a_smaller_error_than_accumulated_ones(name: str) -> None:
    errors = measured(name, "relative_error")
    for point, method in errors:
        if method == "rapp":
            assert errors[point, "rapp"] < errors[point, "igpp-accumulated"]


@pytest.mark.parametrize("name", RUNS)
def test_nobody_is_worse_off_than_alone_by_more_than_noise(name: str) -> None:
    for gap in differences(name, "local").values():
        assert gap["high"] > 0
        assert gap["mean"] > -0.5


@pytest.mark.parametrize("other", ["local", "igpp", "vpdr"])
@pytest.mark.parametrize("name", RUNS)
def test_who_lacks_classes_gains(name: str, other: str) -> None:
    gaps = differences(name, other)
    for epsilon in ("1", "8"):
        assert gaps[f"alpha=0.1, eps={epsilon}"]["low"] > 0


def test_office_is_as_good_as_the_study_promised() -> None:
    found, head = measured("strict", "fused"), measured("strict", "head")
    for epsilon, least in (("1", 82), ("2", 91), ("4", 94)):
        assert found[f"alpha=0.1, eps={epsilon}", "rapp"] >= least
    assert abs(head["alpha=0.1, eps=1", "local"] - 50) < 3
