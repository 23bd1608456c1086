"""A healthy installation passes, and each thing that may be broken is named."""

import json

import pytest
import torch

from vpdr.audits import checkup as room
from vpdr.audits.checkup import CHECKS, Failed, checkup
from vpdr.cli import main
from vpdr.client import Client
from vpdr.mechanisms import SystemNoise
from vpdr.privacy import Ledger, LedgerFile
from vpdr.prototypes import ClassMeans, ClassSums
from vpdr.types import Prototypes


def test_this_installation_is_healthy(capsys) -> None:
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] is True
    assert {check["name"] for check in told["checks"]} == set(CHECKS)
    assert told["seconds"] < 60


def test_a_failed_check_is_told_and_the_rest_goes_on(capsys, monkeypatch) -> None:
    def sick() -> str:
        raise Failed("it is broken")

    monkeypatch.setattr(room, "CHECKS", {"first": sick, "second": lambda: "fine"})
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "FAILED  first" in told
    assert "it is broken" in told
    assert "ok      second" in told
    assert "not healthy" in told


def test_a_check_that_crashes_has_failed() -> None:
    results = list(checkup({"first": lambda: str(1 / 0), "second": lambda: "fine"}))
    assert [result.ok for result in results] == [False, True]


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_wrong_noise_is_noticed(monkeypatch, factor) -> None:
    right = SystemNoise.normal
    monkeypatch.setattr(SystemNoise, "normal", lambda self, *shape: factor * right(self, *shape))
    with pytest.raises(Failed, match="igpp: "):
        CHECKS["noise of mechanisms"]()


@pytest.mark.parametrize(
    ("rule", "words"), [(ClassMeans, "means move 2.0000"), (ClassSums, "sums move 2.0000")]
)
def test_a_wrong_sensitivity_is_noticed(monkeypatch, rule, words) -> None:
    right = rule.sensitivity
    monkeypatch.setattr(rule, "sensitivity", lambda self, *a: right(self, *a) / 2)
    with pytest.raises(Failed, match=words):
        CHECKS["sensitivities"]()


def test_noise_that_repeats_is_noticed(monkeypatch) -> None:
    same = torch.linspace(0.01, 0.99, 4096, dtype=torch.float64)
    monkeypatch.setattr(SystemNoise, "uniform", lambda self, *shape: same[: shape[0]])
    with pytest.raises(Failed, match="two draws"):
        CHECKS["noise of the system"]()


def test_noise_that_a_fork_repeats_is_noticed(monkeypatch) -> None:
    rng = torch.Generator()  # a generator in memory is copied by a fork
    monkeypatch.setattr(
        SystemNoise, "uniform", lambda self, *shape: torch.rand(*shape, generator=rng, dtype=torch.float64)
    )
    with pytest.raises(Failed, match="forked"):
        CHECKS["noise of the system"]()


def test_a_personal_path_in_public_clothes_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(Client, "released_features", Client.personal_features)
    with pytest.raises(Failed, match="training changes public features"):
        CHECKS["encoder independence"]()


def test_a_personal_path_in_a_broadcasts_clothes_is_noticed(monkeypatch) -> None:
    right = Client.released_features

    def wrong(self, samples):
        told = self.path is not None
        return self.personal_features(samples) if told else right(self, samples)

    monkeypatch.setattr(Client, "released_features", wrong)
    with pytest.raises(Failed, match="mpft: more than the broadcast is felt"):
        CHECKS["encoder independence"]()


def test_an_upload_with_more_in_it_is_noticed(monkeypatch) -> None:
    right = Prototypes.arrays
    monkeypatch.setattr(Prototypes, "arrays", lambda self: {**right(self), "sizes": self.labels})
    with pytest.raises(Failed, match="sends sizes"):
        CHECKS["uploads"]()


def test_a_ledger_without_limit_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(Ledger, "_refuse_overspending", lambda self, receipt, round: None)
    with pytest.raises(Failed, match="a third release"):
        CHECKS["ledger"]()


def test_a_ledger_that_forgets_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(LedgerFile, "_write", _only_the_first(LedgerFile._write))
    with pytest.raises(Failed, match="before it was paid"):
        CHECKS["ledger"]()


def _only_the_first(right):
    done = []

    def write(self, ledger) -> None:
        if not done:
            right(self, ledger)
        done.append(ledger)

    return write
