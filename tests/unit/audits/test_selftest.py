"""`vpdr doctor`: a healthy installation passes, and each broken part is named."""

import json

import numpy as np
import pytest
import torch

from vpdr import rng as exact_noise
from vpdr.audits import selftest
from vpdr.audits.selftest import CHECKS, SelfTestFailed, run_selftests
from vpdr.cli import main
from vpdr.client import Client
from vpdr.mechanisms import SeededNoise, SystemNoise
from vpdr.privacy import Ledger, LedgerFile
from vpdr.prototypes import ClassMeans, ClassSums
from vpdr.types import Prototypes


def test_this_installation_is_healthy(capsys) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["healthy"] is True
    assert {check["name"] for check in report["checks"]} == set(CHECKS)
    assert report["seconds"] < 60
    assert "not supported" not in str(report)


def test_a_failed_check_is_reported_and_the_others_still_run(capsys, monkeypatch) -> None:
    def broken() -> str:
        raise SelfTestFailed("it is broken")

    monkeypatch.setattr(selftest, "CHECKS", {"first": broken, "second": lambda: "fine"})
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "FAILED  first" in output
    assert "it is broken" in output
    assert "ok      second" in output
    assert "not healthy" in output


def test_a_check_that_crashes_has_failed() -> None:
    results = list(run_selftests({"first": lambda: str(1 / 0), "second": lambda: "fine"}))
    assert [result.ok for result in results] == [False, True]


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_wrong_noise_is_noticed(monkeypatch, factor) -> None:
    original = SystemNoise.rounded_gaussian
    monkeypatch.setattr(
        SystemNoise, "rounded_gaussian", lambda self, scales: (factor * original(self, scales)).round().long()
    )
    with pytest.raises(SelfTestFailed, match="igpp: "):
        CHECKS["noise of mechanisms"]()


@pytest.mark.parametrize(
    ("summariser", "message"), [(ClassMeans, "means move 2.0000"), (ClassSums, "sums move 2.0000")]
)
def test_a_wrong_sensitivity_is_noticed(monkeypatch, summariser, message) -> None:
    original = summariser.sensitivity
    monkeypatch.setattr(summariser, "sensitivity", lambda self, *arguments: original(self, *arguments) / 2)
    with pytest.raises(SelfTestFailed, match=message):
        CHECKS["sensitivities"]()


def test_noise_that_repeats_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(SystemNoise, "rounded_gaussian", lambda self, scales: scales)
    with pytest.raises(SelfTestFailed, match="two draws"):
        CHECKS["noise of the system"]()


def test_noise_that_a_fork_repeats_is_noticed(monkeypatch) -> None:
    rng = torch.Generator()  # a generator in memory is copied by a fork
    monkeypatch.setattr(SystemNoise, "rounded_gaussian", lambda self, scales: SeededNoise(rng).rounded_gaussian(scales))
    with pytest.raises(SelfTestFailed, match="forked"):
        CHECKS["noise of the system"]()


@pytest.mark.parametrize(("draw", "name"), [("rounded_gaussian", "Gaussian"), ("discrete_laplace", "Laplace")])
def test_noise_of_another_distribution_is_noticed(monkeypatch, draw, name) -> None:
    original = getattr(SystemNoise, draw)
    monkeypatch.setattr(SystemNoise, draw, lambda self, scales: original(self, scales).abs())
    with pytest.raises(SelfTestFailed, match=name):
        CHECKS["noise of the system"]()


def test_an_exponential_that_is_not_precise_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(exact_noise.np, "exp", lambda values: np.e**values * 0.9)
    with pytest.raises(SelfTestFailed, match="double precision decides otherwise"):
        CHECKS["noise of the system"]()


def test_a_personal_encoder_declared_as_public_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(Client, "released_features", Client.personal_features)
    with pytest.raises(SelfTestFailed, match="training changes public features"):
        CHECKS["encoder independence"]()


def test_a_personal_encoder_declared_as_broadcast_is_noticed(monkeypatch) -> None:
    original = Client.released_features

    def released_features(self, samples):
        has_feature_map = self.feature_map is not None
        return self.personal_features(samples) if has_feature_map else original(self, samples)

    monkeypatch.setattr(Client, "released_features", released_features)
    with pytest.raises(SelfTestFailed, match="mpft: released features depend on more than the broadcast"):
        CHECKS["encoder independence"]()


def test_an_upload_with_an_additional_array_is_noticed(monkeypatch) -> None:
    original = Prototypes.to_arrays
    monkeypatch.setattr(Prototypes, "to_arrays", lambda self: {**original(self), "sizes": self.labels})
    with pytest.raises(SelfTestFailed, match="sends sizes"):
        CHECKS["uploads"]()


def test_a_ledger_without_a_limit_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(Ledger, "_check_budget", lambda self, receipt, round: None)
    with pytest.raises(SelfTestFailed, match="a third release"):
        CHECKS["ledger"]()


def test_a_ledger_that_loses_charges_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(LedgerFile, "_write", _first_write_only(LedgerFile._write))
    with pytest.raises(SelfTestFailed, match="before it was charged"):
        CHECKS["ledger"]()


def _first_write_only(original):
    written = []

    def write(self, ledger) -> None:
        if not written:
            original(self, ledger)
        written.append(ledger)

    return write
