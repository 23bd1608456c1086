"""A release is sealed: nothing but its receipt can be read before a ledger has recorded the charge."""

import copy
import dataclasses
import pickle
from functools import partial

import pytest
import torch
from jaxtyping import TypeCheckError

from tests.conftest import BUDGET, blobs, opened
from vpdr import (
    Adjacency,
    Budget,
    BudgetExceeded,
    ChargeRequired,
    Igpp,
    InvalidInput,
    Ledger,
    LedgerFile,
    NoPrivacy,
    Prototypes,
    Rapp,
    Release,
    ReleaseContext,
    ReleaseProjection,
)
from vpdr.privacy.ledger import Charge
from vpdr.validation import VpdrError

MECHANISM = Igpp.calibrated(BUDGET, 2, clip_norm=5.0, accumulate=True)
SECRET = 7_654_321.0  # a value that every release below holds, and that no text of it may show


def sealed() -> Release:
    prototypes = Prototypes(torch.full((1, 2), SECRET), torch.tensor([0]))
    receipt = MECHANISM.receipt_for()
    return Release(prototypes, receipt, {"sigma": SECRET}, {"rows": torch.full((1, 2), SECRET)})


def ledger(**settings: object) -> Ledger:
    return Ledger(**{"client": "a", "budget": BUDGET, **settings})


@pytest.mark.parametrize("name", ["prototypes", "state", "diagnostics"])
def test_nothing_is_readable_before_the_charge(name) -> None:
    release = sealed()
    with pytest.raises(ChargeRequired, match="charge_to") as caught:
        getattr(release, name)
    assert "\n" not in str(caught.value)
    assert str(SECRET) not in str(caught.value)
    assert release.receipt == MECHANISM.receipt_for()
    release.charge_to(ledger(), round=1)
    assert getattr(release, name) is not None


def test_the_charge_returns_what_may_be_sent() -> None:
    release = sealed()
    upload = release.charge_to(ledger(), round=1)
    assert upload is release.prototypes
    assert float(upload.vectors[0, 0]) == SECRET
    assert release.state.keys() == {"rows"}
    assert release.diagnostics == {"sigma": SECRET}


@pytest.mark.parametrize("is_open", [False, True])
def test_no_text_and_no_copy_of_a_release_holds_its_values(is_open) -> None:
    release = sealed()
    if is_open:
        release.charge_to(ledger(), round=1)
    for text in (repr(release), str(release), f"{release}", repr([release])):
        assert "7654321" not in text
        assert "7.654" not in text
    for copying in (copy.copy, copy.deepcopy, pickle.dumps, partial(pickle.dumps, protocol=0)):
        with pytest.raises(VpdrError, match="cannot be copied"):
            copying(release)
    for reading in (vars, dataclasses.asdict, dataclasses.astuple, dataclasses.fields):
        with pytest.raises(TypeError):
            reading(release)
    with pytest.raises(TypeError):
        dataclasses.replace(release)


def test_no_attribute_of_a_sealed_release_holds_a_tensor() -> None:
    """What an inspector of variables shows."""
    release = sealed()
    for name in dir(release):
        try:
            value = getattr(release, name)
        except ChargeRequired:
            continue
        assert not isinstance(value, Prototypes | torch.Tensor), name
        assert "7654321" not in repr(value), name


def test_releases_are_compared_by_identity() -> None:
    """Equal releases would say something about their values."""
    release, other = sealed(), sealed()
    assert release == release
    assert release != other
    assert len({release, other}) == 2


def test_a_refused_release_stays_sealed() -> None:
    release, full = sealed(), ledger(budget=Budget(1e-3, 1e-5))
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            release.charge_to(full, round=1)
        with pytest.raises(ChargeRequired):
            release.state  # noqa: B018
    assert not full.entries
    release.charge_to(ledger(), round=1)  # a ledger that allows it opens it


def test_a_refused_stage_leaves_nothing_for_the_next_one() -> None:
    """On plain arrays the memory of a refused stage was once part of the next release, which was not paid for."""
    budget = Budget(0.7, 1e-5)
    projection = ReleaseProjection.identity(32)
    mechanism = Rapp.calibrated(Budget(1.0, 1e-5), 5, clip_norm=5.0, classes=4, projection=projection)
    account, state, rounds = ledger(budget=budget), {}, 0
    for round in range(1, 6):
        release = mechanism.release(*blobs(round), ReleaseContext(state=state, round=round))
        try:
            release.charge_to(account, round=round)
        except BudgetExceeded:
            with pytest.raises(ChargeRequired):
                state = release.state
            continue
        state, rounds = release.state, rounds + 1
    assert int(state["stage"]) == rounds == len(account.entries)
    assert rounds < 5


def test_a_release_is_charged_once() -> None:
    release, account = sealed(), ledger()
    release.charge_to(account, round=1)
    with pytest.raises(VpdrError, match="already charged"):
        release.charge_to(account, round=2)
    assert len(account.entries) == 1


def test_a_charge_opens_one_release_once() -> None:
    """The client that charges before it reads its samples."""
    account = ledger()
    charge = account.charge(MECHANISM.receipt_for(), round=1)
    first, second = sealed(), sealed()
    assert first.open(charge) is first.prototypes
    with pytest.raises(VpdrError, match="already opened a release"):
        second.open(charge)
    with pytest.raises(ChargeRequired):
        second.prototypes  # noqa: B018
    again = account.charge(MECHANISM.receipt_for(), round=2)
    with pytest.raises(VpdrError, match="already charged"):
        first.open(again)
    second.open(again)  # the attempt above did not use it up


def test_a_charge_for_another_receipt_opens_nothing() -> None:
    charge = ledger(budget=None).charge(NoPrivacy().receipt_for(), round=1)
    release = sealed()
    with pytest.raises(VpdrError, match="was paid for"):
        release.open(charge)
    with pytest.raises(ChargeRequired):
        release.prototypes  # noqa: B018


def test_only_a_ledger_makes_a_charge() -> None:
    receipt = MECHANISM.receipt_for()
    with pytest.raises(TypeError, match="ledger"):
        Charge(receipt, 1)
    charge = ledger().charge(receipt, round=1)
    assert (charge.receipt, charge.round) == (receipt, 1)
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(VpdrError, match="cannot be copied"):
            copying(charge)
    with pytest.raises(AttributeError):
        charge.receipt = receipt
    for forged in (None, receipt, True, object()):
        release = sealed()
        with pytest.raises((InvalidInput, TypeCheckError)):
            release.open(forged)
        with pytest.raises(ChargeRequired):
            release.prototypes  # noqa: B018


class ForgetfulLedger(Ledger):
    """A subclass that forgets to return the charge."""

    def charge(self, receipt, *, round, mechanism=""):
        super().charge(receipt, round=round)


def test_a_ledger_that_returns_no_charge_opens_nothing() -> None:
    release = sealed()
    with pytest.raises(InvalidInput, match="expected the charge that a ledger returned, got NoneType"):
        release.charge_to(ForgetfulLedger(client="a", budget=BUDGET), round=1)
    with pytest.raises(ChargeRequired):
        release.prototypes  # noqa: B018


def test_a_file_and_a_ledger_without_a_budget_open_a_release(tmp_path) -> None:
    file = LedgerFile.create(tmp_path / "a.json", ledger())
    assert sealed().charge_to(file, round=1).labels.tolist() == [0]
    assert len(file.read().entries) == 1
    release = NoPrivacy(adjacency=Adjacency.REPLACE_ONE).release(*blobs(1))
    with pytest.raises(BudgetExceeded):
        release.charge_to(ledger(adjacency=Adjacency.REPLACE_ONE), round=1)
    release.charge_to(ledger(budget=None, adjacency=Adjacency.REPLACE_ONE), round=1)
    assert release.prototypes.vectors.shape == (4, 32)


def test_a_mechanism_around_another_one_stays_sealed() -> None:
    inner = sealed()
    release = inner.map_prototypes(lambda each: Prototypes(2 * each.vectors, each.labels))
    for each in (inner, release):
        with pytest.raises(ChargeRequired):
            each.prototypes  # noqa: B018
    assert release.receipt == inner.receipt
    assert float(opened(release).prototypes.vectors[0, 0]) == 2 * SECRET
    assert release.state.keys() == {"rows"}
    with pytest.raises(ChargeRequired):
        inner.prototypes  # noqa: B018
