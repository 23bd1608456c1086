"""A plug-in of every kind, registered from outside, runs, calibrates and is audited without any other change."""

import json
from importlib import metadata

import pytest

import vpdr
from tests.contracts.plug_ins import DummyMechanism
from vpdr import AuditConfig, AuditOptions, Igpp, Registry
from vpdr.audits import make_noise_factory
from vpdr.cli import main

SMALL = ("benchmark.kind=synthetic", "benchmark.samples=40", "model.dim=8", "run.rounds=2")


def command(*arguments: str, monkeypatch) -> int:
    monkeypatch.setattr("sys.argv", ["vpdr", *arguments])
    try:
        code = main()
    except SystemExit as stop:
        code = stop.code
    return code or 0


def test_a_mechanism_runs_with_its_own_options() -> None:
    same = vpdr.run(vpdr.load_config("paper", *SMALL, "mechanism.kind=igpp"))
    config = vpdr.load_config("paper", *SMALL, "mechanism.kind=dummy", "mechanism.dummy.factor=1")
    record = vpdr.run(config)
    assert record.plan["mechanism"]["kind"] == "dummy"
    assert record.final == same.final
    other = vpdr.run(vpdr.load_config("paper", *SMALL, "mechanism.kind=dummy", "mechanism.dummy.factor=9"))
    assert other.rounds[-1].clients != record.rounds[-1].clients
    assert other.privacy.level == "conditional"


def test_a_mechanism_calibrates(monkeypatch, capsys) -> None:
    assert command("calibrate", "--mechanism", "dummy", "--json", monkeypatch=monkeypatch) == 0
    dummy = json.loads(capsys.readouterr().out)
    assert command("calibrate", "--mechanism", "igpp", "--json", monkeypatch=monkeypatch) == 0
    igpp = json.loads(capsys.readouterr().out)
    assert dummy["epsilon_spent"] == pytest.approx(igpp["epsilon_spent"])


def test_a_mechanism_is_audited(monkeypatch, capsys) -> None:
    config = AuditConfig(trials=60, noise=make_noise_factory(1))
    result = vpdr.audit(AuditOptions(mechanism="dummy", rounds=1), config)
    assert not result.refuted
    assert result.claim.epsilon == pytest.approx(1.0)


def test_a_framework_runs_with_its_own_options() -> None:
    config = vpdr.load_config("paper", *SMALL, "framework.kind=dummy", "framework.dummy.push=2")
    same = vpdr.load_config("paper", *SMALL, "framework.kind=fedproto")
    assert vpdr.run(config).final == vpdr.run(same).final
    with pytest.raises(vpdr.InvalidInput, match="pusch"):
        vpdr.load_config("paper", *SMALL, "framework.kind=dummy", "framework.dummy.pusch=2")


def test_a_regulariser_runs_with_its_own_options() -> None:
    config = vpdr.load_config("paper", *SMALL, "regulariser.kind=dummy", "regulariser.dummy.penalty=0.25")
    client = next(iter(vpdr.run(config).rounds[0].clients.values()))
    assert client.losses["guide"] == pytest.approx(0.25)
    with pytest.raises(vpdr.InvalidInput, match=r"unknown setting in \[regulariser\.dummy\]: 'penalti'"):
        vpdr.load_config("paper", *SMALL, "regulariser.kind=dummy", "regulariser.dummy.penalti=0.25")


def test_a_summariser_runs() -> None:
    record = vpdr.run(vpdr.load_config("paper", *SMALL, "release.summariser=dummy"))
    same = vpdr.run(vpdr.load_config("paper", *SMALL, "release.summariser=means"))
    assert record.final == same.final


def test_a_benchmark_and_a_backbone_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = vpdr.load_config(
        "paper",
        "benchmark.kind=dummy",
        f"benchmark.root={tmp_path}",
        "benchmark.pixels=32",
        "model.backbone=dummy",
        "model.weights=random",
        "model.dim=8",
        "run.rounds=1",
    )
    record = vpdr.run(config)
    assert record.clients == ("grey",)


def test_an_entry_point_registers_a_plug_in(monkeypatch) -> None:
    point = metadata.EntryPoint("outside", f"{__name__}:DummyMechanism", "vpdr.mechanisms")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == point.group else [])
    registry = Registry("mechanism", {"igpp": Igpp})
    assert registry["outside"] is DummyMechanism
    with pytest.raises(vpdr.InvalidInput, match="already"):
        registry.register("outside", Igpp)
