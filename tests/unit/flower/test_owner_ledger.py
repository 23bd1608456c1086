"""No new run, deleted file or crash gives budget back."""

from pathlib import Path

import pytest
import torch

from tests.unit.flower.conftest import edit_policy, make_finetune_request, make_request, make_store, num_charges, tiny
from tests.unit.flower.owner_cases import POLICY, refusal_code
from vpdr.flower.client_app import handle_request
from vpdr.flower.owner import NodeStore, RefusalCode, read_policy
from vpdr.privacy import Adjacency, Budget, BudgetExceeded, EncoderKind, GaussianEvent, Receipt
from vpdr.privacy.accountants import GdpAccountant, PureEvent
from vpdr.privacy.guarantee import CountVisibility, GuaranteeTerms, SensitivityBasis
from vpdr.validation import InvalidInput


def test_a_second_run_cannot_spend_the_budget_again(tmp_path: Path) -> None:
    config = tiny("run.rounds=1")
    store = make_store(tmp_path, config)
    assert handle_request(store, make_request(config)).upload is not None
    again = handle_request(store, make_request(config, run="f" * 16))
    assert again.upload is None
    assert again.metadata["why"] == "budget"
    assert num_charges(store) == 1


def test_deleted_run_state_gives_nothing_back(tmp_path: Path) -> None:
    config = tiny("run.rounds=1")
    store = make_store(tmp_path, config)
    handle_request(store, make_request(config))
    for state in (store.path / "runs").iterdir():
        state.unlink()
    assert handle_request(NodeStore(store.path), make_request(config)).metadata["why"] == "budget"
    assert num_charges(store) == 1


def test_another_budget_needs_another_folder(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    handle_request(store, make_request(config))
    edit_policy(store.path, ("epsilon = 1.0", "epsilon = 5.0"))
    with pytest.raises(InvalidInput, match="a budget is not changed by asking again"):
        handle_request(store, make_request(config, message_index=2))


def test_one_part_of_epsilon_is_not_spent_on_the_other(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace("delta = 1e-5", "delta = 1e-5\nselection = 0.25"))
    ledger = NodeStore(tmp_path).ledger(read_policy(tmp_path / "policy.toml"))
    terms = GuaranteeTerms(
        adjacency=Adjacency.REPLACE_SAME_LABEL,
        encoder=EncoderKind.PUBLIC,
        counts=CountVisibility.PUBLIC,
        basis=SensitivityBasis.PROVED,
    )
    ledger.charge(Receipt(events=(PureEvent(0.2),), terms=terms), round=1)
    fits, too_much = (GdpAccountant().noise_multiplier(Budget(epsilon, 1e-5), 1) for epsilon in (0.749, 0.751))
    for event in (PureEvent(0.051), GaussianEvent(too_much)):
        with pytest.raises(BudgetExceeded):
            ledger.charge(Receipt(events=(event,), terms=terms), round=2)
    ledger.charge(Receipt(events=(GaussianEvent(fits), PureEvent(0.05)), terms=terms), round=2)
    assert ledger.read().epsilon_spent <= 1.0


def test_a_ledger_that_is_gone_is_noticed(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    handle_request(store, make_request(config))
    (store.path / "ledger.json").unlink()
    assert refusal_code(store, make_request(config, message_index=2)) is RefusalCode.LEDGER
    (store.path / "dataset.json").unlink()
    assert refusal_code(store, make_request(config, run="f" * 16)) is RefusalCode.LEDGER
    assert not (store.path / "ledger.json").exists()


def test_an_older_copy_of_a_ledger_is_noticed(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    handle_request(store, make_request(config))
    copy = (store.path / "ledger.json").read_bytes()
    handle_request(store, make_request(config, message_index=2))
    (store.path / "ledger.json").write_bytes(copy)
    assert refusal_code(store, make_request(config, message_index=3)) is RefusalCode.LEDGER
    assert num_charges(store) == 1


def test_a_crash_between_charging_and_saving_loses_the_upload_not_the_charge(tmp_path: Path, monkeypatch) -> None:
    config = tiny("run.rounds=2", "release.noise=system")
    store = make_store(tmp_path, config)

    def crash(*_: object) -> None:
        raise OSError("power cut")

    with monkeypatch.context() as broken:
        broken.setattr(NodeStore, "save", crash)
        with pytest.raises(OSError, match="power cut"):
            handle_request(store, make_request(config))
    assert num_charges(store) == 1
    first = handle_request(store, make_request(config)).upload
    assert num_charges(store) == 2
    anchors = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    second = handle_request(store, make_finetune_request(config, anchors)).upload
    assert torch.equal(first.vectors, second.vectors)  # the budget is spent: the last release is sent again
    assert num_charges(store) == 2
