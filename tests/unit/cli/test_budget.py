"""`vpdr calibrate` and `vpdr ledger`, as a user types them."""

import json
from pathlib import Path

import pytest

from vpdr import Adjacency, Budget, Igpp, Ledger, LedgerFile
from vpdr.cli import main
from vpdr.privacy import EncoderKind, GaussianEvent, Receipt
from vpdr.privacy.guarantee import Arithmetic, CountVisibility, GuaranteeTerms, SensitivityBasis

KEYS = {"noise_multiplier", "selection_scale", "kept", "epsilon_spent", "group_noise", "accountant", "adjacency"}


def answer(capsys, *arguments: str) -> dict:
    assert main(list(arguments)) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("accountant", "igpp", "vpp"), [("exact", 16.684, 18.365), ("rdp", 21.9206, 24.3018), ("joint", 16.684, 16.742)]
)
def test_calibrate_meets_the_values(capsys, accountant, igpp, vpp) -> None:
    for mechanism, value in (("igpp", igpp), ("vpp", vpp)):
        calibration = answer(
            capsys, "calibrate", "--mechanism", mechanism, "--epsilon", "1", "--accountant", accountant, "--json"
        )
        assert calibration.keys() >= KEYS
        assert calibration["noise_multiplier"] == pytest.approx(value, abs=1e-3)
        assert calibration["epsilon_spent"] <= calibration["epsilon_by_accountant"] <= 1
        assert len(calibration["group_noise"]) == 2


def test_calibrate_reports_the_epsilon_of_the_published_noise(capsys) -> None:
    calibration = answer(capsys, "calibrate", "--mechanism", "igpp", "--accountant", "rdp", "--json")
    assert calibration["epsilon_spent"] == pytest.approx(0.742, abs=1e-3)


def test_calibrate_of_vpp(capsys) -> None:
    calibration = answer(capsys, "calibrate", "--json")
    assert calibration["kept"] == 103
    assert calibration["selection_scale"] == pytest.approx(4120)
    assert calibration["group_noise"] == pytest.approx([0.550, 1.546], abs=1e-3)
    assert "a coin keeps 0.2012" in calibration["reading"]


def test_calibrate_as_text(capsys) -> None:
    assert main(["calibrate", "--adjacency", "replace-one"]) == 0
    text = capsys.readouterr().out
    assert "18.3654 times the sensitivity" in text
    assert "class means have no sensitivity under replace-one" in text


@pytest.mark.parametrize("selection", ["random", "public", "once", "oracle"])
def test_calibrate_of_other_selections(capsys, selection) -> None:
    calibration = answer(capsys, "calibrate", "--selection", selection, "--json")
    assert (calibration["selection_scale"] is None) is (selection != "once")
    assert (calibration["epsilon_spent"] is None) is (selection == "oracle")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "-1"], "epsilon must be a positive number, got -1"),
        (["--epsilon", "nan"], "epsilon must be a positive number"),
        (["--epsilon", "much"], "not a valid float"),
        (["--delta", "0"], "a Gaussian release needs delta in (0, 1), got 0"),
        (["--delta", "1"], "delta must lie in [0, 1), got 1"),
        (["--mechanism", "laplace"], "unknown mechanism 'laplace'; choose one of igpp, vpp"),
        (["--accountant", "moments"], "unknown accountant 'moments'"),
        (["--adjacency", "any"], "unknown adjacency 'any'"),
        (["--rounds", "0"], "rounds must be a whole number of at least 1"),
        (["--keep", "0.6"], "keep must lie in (0, 0.5], got 0.6"),
        (["--share", "0"], "share must lie in (0, 1)"),
        (["--dim", "1"], "at least 2 dimensions"),
        (["--epsilon", "0.01", "--accountant", "rdp"], "use the exact accountant"),
        (["--epsilonn", "1"], "No such option"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(capsys, arguments, words) -> None:
    assert main(["calibrate", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert words in output.err
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1


def terms(encoder: EncoderKind = EncoderKind.PUBLIC) -> GuaranteeTerms:
    return GuaranteeTerms(
        adjacency=Adjacency.REPLACE_SAME_LABEL,
        encoder=encoder,
        counts=CountVisibility.PUBLIC,
        basis=SensitivityBasis.PROVED,
        arithmetic=Arithmetic.INTEGER,
    )


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    budget = Budget(1.0, 1e-5)
    multiplier = Igpp.calibrated(budget, 20, clip_norm=5.0).noise_multiplier
    file = LedgerFile.create(tmp_path / "amazon.json", Ledger(client="amazon", budget=budget))
    for round in (1, 2, 3):
        file.charge(Receipt(events=(GaussianEvent(multiplier),), terms=terms()), round=round)
    return file.path


def test_ledger_shows_each_round_and_what_is_left(capsys, ledger_path) -> None:
    printed = answer(capsys, "ledger", str(ledger_path), "--json")
    assert [entry["round"] for entry in printed["releases"]] == [1, 2, 3]
    assert printed["epsilon_spent"] + printed["epsilon_left"] == pytest.approx(1.0)
    assert printed["releases_left"] == 17
    assert printed["level"] == "proved"
    assert main(["ledger", str(ledger_path)]) == 0
    text = capsys.readouterr().out
    assert "17 more releases like the last one would fit" in text
    assert text.count("Gaussian 16.68") == 3


def test_an_empty_ledger_and_one_without_budget(capsys, tmp_path) -> None:
    LedgerFile.create(tmp_path / "new.json", Ledger(client="dslr", budget=None))
    printed = answer(capsys, "ledger", str(tmp_path / "new.json"), "--json")
    assert printed["epsilon_left"] is None
    assert main(["ledger", str(tmp_path / "new.json")]) == 0
    assert "no budget" in capsys.readouterr().out


def test_a_ledger_cut_in_half_is_refused(capsys, ledger_path) -> None:
    ledger_path.write_bytes(ledger_path.read_bytes()[: ledger_path.stat().st_size // 2])
    assert main(["ledger", str(ledger_path)]) == 2
    output = capsys.readouterr().err
    assert "refused, not treated as empty" in output
    assert output.count("\n") == 1


def test_a_missing_ledger_is_one_line(capsys, tmp_path) -> None:
    assert main(["ledger", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.startswith("error: cannot read")
    assert main(["ledger", str(tmp_path)]) == 2


def test_an_officer_sees_what_happened_when(capsys, ledger_path) -> None:
    LedgerFile(ledger_path, run="study-2").amend(epsilon=2.0, reason="board of 3 May")
    LedgerFile(ledger_path, run="study-2").charge(
        Receipt(events=(GaussianEvent(50.0),), terms=terms()), round=1, mechanism="Igpp"
    )
    printed = answer(capsys, "ledger", str(ledger_path), "--json")
    last = printed["releases"][-1]
    assert (last["run"], last["mechanism"], last["round"]) == ("study-2", "Igpp", 1)
    assert last["time"].startswith("20")
    assert last["time"].endswith("Z")
    assert last["hash"] == printed["head"] == LedgerFile(ledger_path).read().head
    (change,) = printed["amendments"]
    assert (change["what"], change["old"], change["new"], change["reason"]) == ("epsilon", 1.0, 2.0, "board of 3 May")
    assert change["position"] == 3
    assert main(["ledger", str(ledger_path)]) == 0
    text = capsys.readouterr().out
    assert "epsilon 1 to 2 (board of 3 May)" in text
    assert text.count("study-2") == 2
    assert last["time"] in text
    assert f"head {printed['head']}" in text


def test_a_noted_head_is_found_or_missed(capsys, ledger_path) -> None:
    heads = LedgerFile(ledger_path).read().chain
    for count, head in enumerate(heads):
        assert main(["ledger", str(ledger_path), "--head", head]) == 0
        assert f"the noted head is that after {count} of {len(heads) - 1} lines" in capsys.readouterr().out
    printed = answer(capsys, "ledger", str(ledger_path), "--head", heads[1], "--json")
    assert printed["noted_head"] == {"head": heads[1], "lines_before": 1, "in_file": True}
    assert main(["ledger", str(ledger_path), "--head", "0" * 64]) == 1
    assert "is not in this file" in capsys.readouterr().out
    assert main(["ledger", str(ledger_path), "--head", "short"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_budget_is_changed_by_command(capsys, ledger_path) -> None:
    assert main(["ledger", "amend", str(ledger_path), "--epsilon", "2", "--reason", "board of 3 May"]) == 0
    assert "epsilon 1 to 2" in capsys.readouterr().out
    assert main(["ledger", "amend", str(ledger_path), "--client", "hospital-b", "--json"]) == 0
    assert capsys.readouterr().out.count("hospital-b") >= 1
    ledger = LedgerFile(ledger_path).read()
    assert (ledger.client, ledger.budget) == ("hospital-b", Budget(2.0, 1e-5))
    before = ledger_path.read_bytes()
    for wrong in (["--epsilon", "0.1"], [], ["--client", "hospital-b"], ["--epsilon", "nan"]):
        assert main(["ledger", "amend", str(ledger_path), *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert ledger_path.read_bytes() == before


def test_the_commands_of_a_ledger_have_help(capsys) -> None:
    for arguments in (["ledger", "--help"], ["ledger", "show", "--help"], ["ledger", "amend", "--help"]):
        assert main(arguments) == 0
        assert "FILE" in capsys.readouterr().out
