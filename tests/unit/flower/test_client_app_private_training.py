"""DP-SGD over Flower: the same numbers as `vpdr run`, and each training charged to the owner's ledger."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.unit.flower.conftest import (
    edit_policy,
    make_finetune_request,
    make_request,
    make_store,
    num_charges,
    without_exchange,
)
from tests.unit.mechanisms.dpsgd_cases import private
from vpdr.federation import run_federation
from vpdr.flower.client_app import handle_request
from vpdr.flower.owner import NodeStore
from vpdr.flower.simulation import simulate_in_process
from vpdr.mechanisms import DpSgdTrainer
from vpdr.privacy import GuaranteeLevel, LedgerFile

PROVED = ("budget.adjacency=replace-one", "release.summariser=sums", "budget.require=proved")
CASES = {
    "igpp": (),
    "vpp": ("mechanism.kind=vpp",),
    "rdp": ("budget.accountant=rdp",),
    "proved": PROVED,
    "few releases": ("release.count=2", "run.rounds=4"),
    "several epochs": ("train.epochs=3", "run.rounds=2"),
    "some are away": ("participation.fraction=0.7", "participation.dropout=0.2", "run.rounds=4"),
    "fedtgp": ("framework.kind=fedtgp", "run.rounds=2"),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_numbers_are_those_of_vpdr_run(tmp_path: Path, case: str) -> None:
    config = private(*CASES[case])
    expected = run_federation(config, tmp_path / "run").record
    record = simulate_in_process(config, tmp_path / "flower")
    assert without_exchange(record) == without_exchange(expected)
    assert record.exchange.missing == record.exchange.dropped == 0
    for ledger in (tmp_path / "run" / "ledgers").glob("*.json"):
        assert (tmp_path / "flower" / "ledgers" / ledger.name).read_bytes() == ledger.read_bytes()
    for policy in (tmp_path / "flower" / "nodes").glob("*/policy.toml"):
        assert not (policy.parent / "refusals.log").exists()


def test_each_training_is_in_the_owners_ledger(tmp_path: Path) -> None:
    config = private("release.noise=system")
    store = make_store(tmp_path, config)
    broadcast = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    handle_request(store, make_request(config))
    handle_request(store, make_finetune_request(config, broadcast))
    ledger = LedgerFile(store.path / "ledger.json").read()
    assert [entry.receipt.purpose for entry in ledger.entries] == ["release", "training", "release"]
    assert ledger.level is GuaranteeLevel.PROVED
    again = handle_request(NodeStore(store.path), make_finetune_request(config, broadcast))
    assert again.upload is not None
    assert num_charges(store) == 3


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once called, every gradient sum of the encoder fails."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    return lambda: monkeypatch.setattr(DpSgdTrainer, "clipped_gradient_sum", fail)


@pytest.mark.parametrize("settings", [(), PROVED], ids=["replace-same-label", "proved"])
def test_a_failed_training_does_not_show_in_the_reply(tmp_path: Path, broken, settings) -> None:
    config = private("release.noise=system", *settings)
    broadcast = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    metadata = []
    for case in ("whole", "broken"):
        store = make_store(tmp_path / case, config)
        edit_policy(store.path, ('metrics = "everything"', 'metrics = "nothing"'))
        handle_request(store, make_request(config))
        if case == "broken":
            broken()
        reply = handle_request(store, make_finetune_request(config, broadcast, known_receipts=1))
        assert reply.upload is not None
        metadata.append(reply.metadata)
    assert "fine-tuning failed" in (store.path / "refusals.log").read_text()
    assert metadata[0] == metadata[1]
    assert [entry["purpose"] for entry in metadata[1]["entries"]] == ["training", "release"]


def test_lost_steps_are_not_charged_to_the_share_of_releases(tmp_path: Path, monkeypatch) -> None:
    failures = iter([True])
    whole = DpSgdTrainer.clipped_gradient_sum

    def fail_once(self, *args):
        if next(failures, False):
            raise ZeroDivisionError
        return whole(self, *args)

    monkeypatch.setattr(DpSgdTrainer, "clipped_gradient_sum", fail_once)
    record = simulate_in_process(private("run.rounds=4"), tmp_path)
    for name, ledger in record.ledgers.items():
        assert [entry["purpose"] for entry in ledger["entries"]] == [*["release", "training"] * 3, "release"], name
    assert record.privacy.level == "proved"
