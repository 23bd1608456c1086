"""Ledger files: a history that is only ever continued, whoever replaces, edits or unlocks the file."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.unit.privacy.test_ledger import BUDGET, MULTIPLIER, RECEIPT, ROUNDS, fresh
from vpdr import Budget, BudgetExceeded, Igpp, Ledger, LedgerFile
from vpdr.privacy.ledger import Amendment, LedgerEntry
from vpdr.privacy.ledger_file import encode_ledger, open_file_ledger
from vpdr.validation import DamagedFile, InvalidInput

OLD_RUN = Path(__file__).parents[2] / "integration" / "version_0_1" / "finished"


def charged(path: Path, times: int, **settings: object) -> LedgerFile:
    file = LedgerFile.open_or_create(path, fresh(**settings))
    for t in range(times):
        file.charge(RECEIPT, round=t + 1)
    return file


# An older copy, or the file of somebody else, in the place of the file that a process holds.


@pytest.mark.parametrize("hold", [lambda path: LedgerFile(path), lambda path: open_file_ledger(fresh(), path)])
def test_an_older_copy_is_refused_while_a_process_holds_the_ledger(tmp_path: Path, hold) -> None:
    """Twenty further charges were once accepted: epsilon 1.465 under a claim of 1."""
    path = tmp_path / "a.json"
    charged(path, 10)
    holder = hold(path)
    shutil.copy(path, tmp_path / "copy.json")
    holder.charge(RECEIPT, round=11)
    shutil.copy(tmp_path / "copy.json", path)
    for _ in range(2):
        with pytest.raises(DamagedFile, match="older copy"):
            holder.charge(RECEIPT, round=12)
    assert len(LedgerFile(path).read().entries) == 10
    if isinstance(holder, LedgerFile):
        with pytest.raises(DamagedFile, match="older copy"):
            holder.read()


def test_the_file_of_another_client_is_refused(tmp_path: Path) -> None:
    """A file of another client with epsilon 1000 was once accepted."""
    path = tmp_path / "a.json"
    holder = charged(path, 1)
    LedgerFile.create(tmp_path / "b.json", Ledger(client="b", budget=Budget(1000.0, 1e-5)))
    os.replace(tmp_path / "b.json", path)
    with pytest.raises(DamagedFile, match="another ledger"):
        holder.charge(RECEIPT, round=2)
    assert not LedgerFile(path).read().entries


def test_a_ledger_that_was_only_opened_knows_its_header(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for holder in (LedgerFile.create(path, fresh()), LedgerFile.open_or_create(path, fresh())):
        path.unlink()
        LedgerFile.create(path, fresh(budget=Budget(1000.0, 1e-5)))
        with pytest.raises(DamagedFile, match="another ledger"):
            holder.charge(RECEIPT, round=1)
        path.unlink()
        LedgerFile.create(path, fresh())


def test_charges_of_other_processes_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    first, second = charged(path, 1), LedgerFile(path)
    for t in range(3):
        second.charge(RECEIPT, round=t)
        first.charge(RECEIPT, round=t)
    assert len(first.read().entries) == len(second.read().entries) == 7


# Locks.


def _spend(path: Path, results: str) -> None:
    for _ in range(15):
        try:
            LedgerFile(path).charge(RECEIPT, round=1)
        except BudgetExceeded:
            return
        with open(results, "a") as file:
            file.write(".")


def test_a_removed_lock_file_loses_no_charge(tmp_path: Path) -> None:
    """41 charges once returned, and 20 were on disk."""
    path = tmp_path / "a.json"
    LedgerFile.create(path, fresh())
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_spend, args=(path, str(tmp_path / f"{n}.txt"))) for n in range(4)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        for lock in tmp_path.glob("*.lock"):
            lock.unlink(missing_ok=True)
        time.sleep(0.0005)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    returned = sum(len(each.read_text()) for each in tmp_path.glob("*.txt"))
    assert returned == len(LedgerFile(path).read().entries) == ROUNDS


# The chain: an edit, a cut in the middle and a swap are detected on reading.


def lines(path: Path) -> list[dict]:
    return json.loads(path.read_text())["entries"]


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["entries"].pop(),
        lambda body: body["entries"].pop(1),
        lambda body: body["entries"].pop(0),
        lambda body: body["entries"].reverse(),
        lambda body: body["entries"].append(body["entries"][-1]),
        lambda body: body["entries"][1]["events"][0].update(multiplier=1e9),
        lambda body: body["entries"][1].update(time="2020-01-01T00:00:00Z"),
        lambda body: body["entries"][1].update(run="another"),
        lambda body: body["entries"][1].update(round=7),
        lambda body: body["entries"][1].update(kind="note"),
        lambda body: body["entries"][1].pop("hash"),
        lambda body: body["budget"].update(epsilon=8.0),
        lambda body: body.update(client="b"),
        lambda body: body.update(head="0" * 64),
        lambda body: body.pop("head"),
        lambda body: body.update(version=3),
        lambda body: body.update(entries={}),
    ],
)
def test_an_edited_history_is_refused(tmp_path: Path, change) -> None:
    path = tmp_path / "a.json"
    file = charged(path, 3)
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))
    with pytest.raises(DamagedFile, match="refused"):
        LedgerFile(path).read()
    with pytest.raises(DamagedFile):
        file.charge(RECEIPT, round=4)


def test_a_cut_of_the_last_entries_is_seen_by_its_holder_and_by_a_noted_head(tmp_path: Path) -> None:
    """Whoever computes the head anew can cut the end: the file alone cannot tell."""
    path = tmp_path / "a.json"
    file = charged(path, 3)
    noted = file.read().head
    body = json.loads(path.read_text())
    body["entries"].pop()
    body["head"] = body["entries"][-1]["hash"]
    path.write_text(json.dumps(body))
    cut = LedgerFile(path).read()
    assert len(cut.entries) == 2
    assert noted not in cut.chain
    with pytest.raises(DamagedFile, match="older copy"):
        file.read()


def test_heads_only_ever_grow(tmp_path: Path) -> None:
    file, heads = LedgerFile.create(tmp_path / "a.json", fresh()), []
    for t in range(3):
        heads.append(file.read().head)
        file.charge(RECEIPT, round=t)
    assert len(set(heads)) == 3
    assert file.read().chain[:3] == tuple(heads)


# What an entry says.


def test_an_entry_says_when_what_and_by_which_run(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    LedgerFile.create(path, fresh())
    for run in ("study-1", ""):
        release = Igpp(clip_norm=1.0, noise_multiplier=MULTIPLIER).release([[1.0, 0.0]], [0])
        release.charge_to(LedgerFile(path, run=run), round=1)
    first, second = LedgerFile(path).read().entries
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", first.time)
    assert (first.run, first.mechanism, first.round) == ("study-1", "Igpp", 1)
    assert second.run not in ("", "study-1")  # one for each object that opens the file


def test_entries_are_immutable() -> None:
    ledger = fresh()
    ledger.charge(RECEIPT, round=1)
    with pytest.raises(AttributeError):
        ledger.entries.append(ledger.entries[0])
    with pytest.raises(AttributeError):
        ledger.entries[0].round = 2


def test_a_ledger_in_memory_has_no_clock() -> None:
    """Records of equal seeds are equal: no time enters them, whatever engine made them."""
    ledger = fresh()
    ledger.charge(RECEIPT, round=1, mechanism="Igpp")
    assert ledger.entries == (LedgerEntry(1, RECEIPT),)
    assert not {"time", "run", "mechanism"} & ledger.state_dict()["entries"][0].keys()
    assert b"time" not in encode_ledger(ledger)


@pytest.mark.parametrize("round", [float("nan"), 1.0, 1.5, -1, "1", None, True])
def test_a_round_is_a_whole_number(tmp_path: Path, round) -> None:
    for ledger in (fresh(), LedgerFile.create(tmp_path / "a.json", fresh())):
        with pytest.raises(InvalidInput, match="round must be a whole number of at least 0"):
            ledger.charge(RECEIPT, round=round)
    state = fresh().state_dict()
    ledger = fresh()
    ledger.charge(RECEIPT, round=1)
    state = ledger.state_dict()
    state["entries"][0]["round"] = round
    with pytest.raises(InvalidInput):
        Ledger.from_state_dict(state)
    assert not LedgerFile(tmp_path / "a.json").read().entries


# Files of version 1.


def test_a_file_of_version_1_is_read_and_migrated_by_the_next_charge(tmp_path: Path) -> None:
    path = tmp_path / "client-000.json"
    shutil.copy(OLD_RUN / "ledgers" / "client-000.json", path)
    before, old = path.read_bytes(), LedgerFile(path).read()
    assert path.read_bytes() == before
    assert [entry.time for entry in old.entries] == [""] * len(old.entries)
    holder = LedgerFile(path)
    holder.read()
    with pytest.raises(BudgetExceeded):
        holder.charge(RECEIPT, round=9)
    assert path.read_bytes() == before
    cheap = type(RECEIPT)(events=(type(RECEIPT.events[0])(1e9),), terms=RECEIPT.terms)
    for round in (9, 10):
        holder.charge(cheap, round=round)
    new = LedgerFile(path).read()
    assert new.entries[: len(old.entries)] == old.entries
    assert [entry.round for entry in new.entries[len(old.entries) :]] == [9, 10]
    (note,) = new.amendments
    assert (note.what, note.old, note.new, note.position) == ("format", 1, 2, len(old.entries))
    assert json.loads(path.read_text())["version"] == 2
    assert new.chain[: len(old.chain)] == old.chain


def test_an_edited_file_of_version_1_is_refused(tmp_path: Path) -> None:
    body = json.loads((OLD_RUN / "ledgers" / "client-000.json").read_text())
    body["entries"].pop()
    (tmp_path / "a.json").write_text(json.dumps(body))
    with pytest.raises(DamagedFile, match="checksum"):
        LedgerFile(tmp_path / "a.json").read()


# Changes of the budget and of the name.


def test_a_budget_is_raised_by_an_entry_of_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    file = charged(path, ROUNDS)
    other = LedgerFile(path)
    other.read()
    with pytest.raises(BudgetExceeded):
        other.charge(RECEIPT, round=21)
    file.amend(epsilon=2.0, reason="second study, approved")
    other.charge(RECEIPT, round=21)  # who holds the file goes on
    ledger = file.read()
    (raised,) = ledger.amendments
    assert isinstance(raised, Amendment)
    assert (raised.what, raised.old, raised.new, raised.position) == ("epsilon", 1.0, 2.0, ROUNDS)
    assert raised.time.endswith("Z")
    assert raised.reason == "second study, approved"
    assert ledger.budget == Budget(2.0, 1e-5)
    assert lines(path)[ROUNDS]["kind"] == "amendment"
    with pytest.raises(InvalidInput, match="not changed by asking again"):
        LedgerFile.open_or_create(path, fresh())
    LedgerFile.open_or_create(path, fresh(budget=Budget(2.0, 1e-5)))


def test_a_budget_is_lowered_to_what_is_spent_at_most(tmp_path: Path) -> None:
    file = charged(tmp_path / "a.json", 5)
    spent = file.read().epsilon_spent
    before = file.path.read_bytes()
    for epsilon in (spent * 0.999, 0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput):
            file.amend(epsilon=epsilon)
    assert file.path.read_bytes() == before
    file.amend(epsilon=spent)
    with pytest.raises(BudgetExceeded):
        file.charge(RECEIPT, round=6)
    assert file.read().epsilon_left == 0.0


def test_a_client_is_renamed(tmp_path: Path) -> None:
    file = charged(tmp_path / "a.json", 1)
    file.amend(client="hospital-b")
    ledger = file.read()
    assert ledger.client == "hospital-b"
    assert [(each.what, each.old, each.new) for each in ledger.amendments] == [("client", "amazon", "hospital-b")]
    file.charge(RECEIPT, round=2)
    again = Ledger.from_state_dict(json.loads(json.dumps(file.read().state_dict())))
    assert again == file.read()
    for changes in ({}, {"client": ""}, {"client": "hospital-b"}, {"epsilon": 1.0}):
        with pytest.raises(InvalidInput):
            file.amend(**changes)


def test_without_a_budget_there_is_none_to_change(tmp_path: Path) -> None:
    file = LedgerFile.create(tmp_path / "a.json", fresh(budget=None))
    with pytest.raises(InvalidInput, match="has no budget"):
        file.amend(epsilon=1.0)


def test_a_checkpoint_from_before_a_change_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    ledger = open_file_ledger(fresh(), path)
    ledger.charge(RECEIPT, round=1)
    saved = json.loads(json.dumps(ledger.state_dict()))
    LedgerFile(path).amend(epsilon=2.0)
    ledger.charge(RECEIPT, round=2)
    assert ledger.budget == Budget(2.0, 1e-5)
    ledger.load_state_dict(saved)
    assert len(ledger.entries) == 2
    with pytest.raises(InvalidInput, match="a ledger never forgets"):
        ledger.load_state_dict(Ledger(client="b", budget=BUDGET).state_dict())


# Interrupted writes.


def _write_until_killed(path: Path, pipe: int) -> None:
    def stop(*_: object) -> None:
        os.write(pipe, b".")
        time.sleep(60)

    os.replace = stop  # the content is on disk, its name is not
    LedgerFile(path).charge(RECEIPT, round=2)


def test_what_a_killed_process_left_is_ignored_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    file = charged(path, 1)
    reader, writer = os.pipe()
    worker = multiprocessing.get_context("fork").Process(target=_write_until_killed, args=(path, writer))
    worker.start()
    os.read(reader, 1)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    (tmp_path / ".b.json.0123456789ab.part").write_text("of another ledger")
    assert len(list(tmp_path.glob(".a.json.*.part"))) == 1
    assert len(LedgerFile(path).read().entries) == 1
    file.charge(RECEIPT, round=2)
    assert [each.name for each in tmp_path.glob(".*.part")] == [".b.json.0123456789ab.part"]
    assert len(file.read().entries) == 2
