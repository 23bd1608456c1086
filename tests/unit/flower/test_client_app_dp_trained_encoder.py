"""Charged DP-SGD steps are kept: no sample decides without noise which encoder makes the next release."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.flower.conftest import RUN, make_feature_store, make_finetune_request, make_request, make_store
from tests.unit.mechanisms.dpsgd_cases import private
from vpdr.client import Client
from vpdr.config import RunConfig
from vpdr.flower.client_app import handle_request
from vpdr.flower.messages import RoundReply
from vpdr.flower.owner import NodeStore
from vpdr.mechanisms import DpSgdTrainer
from vpdr.privacy import GuaranteeLevel, LedgerFile

ANCHORS = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}


def raise_error(*_: object) -> None:
    raise ZeroDivisionError


def nan_loss(*_: object) -> dict[str, float]:
    return {"base": float("nan")}


def finetune_and_release(store: NodeStore, config: RunConfig, message_index: int = 2) -> RoundReply:
    return handle_request(store, make_finetune_request(config, ANCHORS, message_index=message_index))


def state(store: NodeStore) -> dict[str, Any]:
    return store.load(RUN)["client"]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def log(store: NodeStore) -> str:
    file = store.path / "refusals.log"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("step", [raise_error, nan_loss], ids=["it stops", "its loss is no number"])
def test_a_head_that_fails_does_not_choose_the_encoder(tmp_path: Path, monkeypatch, step) -> None:
    config = private("train.epochs=2")
    whole, broken = (make_store(tmp_path / name, config) for name in ("whole", "broken"))
    for store in (whole, broken):
        handle_request(store, make_request(config))
    before = state(broken)
    expected_replies = [finetune_and_release(whole, config, message_index) for message_index in (2, 3)]
    monkeypatch.setattr(Client, "_step", step)
    failed_replies = [finetune_and_release(broken, config, message_index) for message_index in (2, 3)]
    assert "fine-tuning failed" in log(broken)
    assert not log(whole)
    for reply, expected in zip(failed_replies, expected_replies, strict=True):
        assert reply.upload is not None
        assert expected.upload is not None
        assert torch.equal(reply.upload.vectors, expected.upload.vectors)
    assert same(state(broken)["encoder"], state(whole)["encoder"])
    assert same(state(broken)["trainer"]["head"], state(whole)["trainer"]["head"])
    assert state(broken)["trainer"]["steps"] == state(whole)["trainer"]["steps"] == 4
    assert same(state(broken)["head"], before["head"])
    assert not state(broken)["optimiser"]["state"]


def test_steps_before_a_failure_are_kept_as_they_were_charged(tmp_path: Path, monkeypatch) -> None:
    config = private("train.epochs=3", "release.noise=system")
    store = make_store(tmp_path, config)
    handle_request(store, make_request(config))
    encoders: list[dict[str, torch.Tensor]] = []
    whole = DpSgdTrainer.clipped_gradient_sum

    def fail_second(self, *args):
        encoders.append({name: value.clone() for name, value in self.model.encoder.state_dict().items()})
        return raise_error() if len(encoders) == 2 else whole(self, *args)

    monkeypatch.setattr(DpSgdTrainer, "clipped_gradient_sum", fail_second)
    assert finetune_and_release(store, config).upload is not None
    assert "fine-tuning failed" in log(store)
    assert same(state(store)["encoder"], encoders[1])
    assert not same(encoders[0], encoders[1])
    assert state(store)["trainer"]["steps"] == 1
    ledger = LedgerFile(store.path / "ledger.json").read()
    assert (ledger.training_steps, ledger.level) == (3, GuaranteeLevel.PROVED)


def test_one_sample_that_overflows_does_not_choose_the_encoder(tmp_path: Path) -> None:
    config = private("train.lr=100", "budget.adjacency=replace-one", "release.summariser=sums")
    store = make_feature_store(tmp_path, config)
    with np.load(tmp_path / "silo.npz") as file:
        arrays = dict(file)
    arrays["train_x"][0] = 1e14  # within what an owner's file may hold
    np.savez(tmp_path / "silo.npz", **arrays)
    handle_request(store, make_request(config))
    before = state(store)
    reply = finetune_and_release(store, config)
    assert "the losses are not finite" in log(store)
    assert not same(state(store)["encoder"], before["encoder"])
    assert reply.upload is not None
    assert bool(torch.isfinite(reply.upload.vectors).all())


@pytest.mark.parametrize("rate", ["1e20", "1e38"])
def test_an_encoder_with_overflowing_weights_still_releases(tmp_path: Path, rate: str) -> None:
    config = private(f"train.lr={rate}", "train.epochs=1")
    store = make_store(tmp_path, config)
    handle_request(store, make_request(config))
    for message_index in (2, 3):
        reply = finetune_and_release(store, config, message_index)
        assert reply.upload is not None
        assert bool(torch.isfinite(reply.upload.vectors).all())
    assert state(store)["trainer"]["steps"] == 2
    ledger = LedgerFile(store.path / "ledger.json").read()
    assert [str(each.receipt.purpose) for each in ledger.entries] == ["release", *["training", "release"] * 2]
