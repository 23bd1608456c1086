"""Same seed, same record: in any order, after any stop."""

import dataclasses
from pathlib import Path

import pytest
import torch

from tests.unit.federation.conftest import timeless, tiny
from vpdr.federation.builder import build
from vpdr.federation.rounds import simulate
from vpdr.federation.run import RunOptions, run_federation
from vpdr.frameworks import FRAMEWORKS
from vpdr.records import finished_record, read_record
from vpdr.validation import DamagedFile, InvalidInput

ALL = [f"framework.kind={name}" for name in FRAMEWORKS]
VPDR = ("mechanism.kind=vpp", "regulariser.kind=dcr")


def record_of(config, federation=None) -> dict:
    federation = federation or build(config)
    state = simulate(federation)
    return finished_record(config, state.round_records, [client.ledger for client in federation.clients], 0.0)


@pytest.mark.parametrize("framework", ALL)
def test_same_seed_same_record(framework) -> None:
    config = tiny(framework, *VPDR)
    assert timeless(record_of(config)) == timeless(record_of(config))


def test_another_seed_is_another_run() -> None:
    assert timeless(record_of(tiny(*VPDR)).rounds) != timeless(record_of(tiny(*VPDR, "run.seed=1")).rounds)


def test_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    record_of(tiny(*VPDR))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("framework", ALL)
def test_clients_may_work_in_another_order(framework) -> None:
    config = tiny(framework, *VPDR)
    normal, other = build(config), build(config)
    # each client works in reverse; the server still gets the uploads by the clients' ids
    memory = other.server.init_state()
    for t in (1, 2, 3):
        uploads = {client.id: client.release(t) for client in reversed(other.clients)}
        sent = [client for client in other.clients if uploads[client.id] is not None]
        broadcast, memory = other.server.framework.aggregate(
            [uploads[client.id] for client in sent], memory, other.server.context(t, [client.id for client in sent])
        )
        for client in reversed(other.clients):
            client.finetune(broadcast, t)
    simulate(normal)
    for first, second in zip(normal.clients, other.clients, strict=True):
        for one, two in zip(first.model.head.parameters(), second.model.head.parameters(), strict=True):
            assert torch.equal(one, two)
        assert first.ledger == second.ledger


class StopAfter:
    """Asks to stop once a number of rounds is done."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("selection", ["laplace", "once", "public"])
@pytest.mark.parametrize("framework", ["fedproto", "fedpcl", "fedtgp", "mpft"])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, framework, selection) -> None:
    config = tiny(f"framework.kind={framework}", *VPDR, f"mechanism.selection={selection}", "run.rounds=4")
    whole = run_federation(config, tmp_path / "whole").record
    for stop_after in (1, 3):
        out = tmp_path / f"stopped-{stop_after}"
        result = run_federation(config, out, options=RunOptions(stop=StopAfter(stop_after)))
        assert (result.record, result.rounds_done) == (None, stop_after)
        again = run_federation(config, out, resume=True).record
        assert timeless(again) == timeless(whole)
        assert timeless(read_record(out / "record.json")) == timeless(read_record(tmp_path / "whole/record.json"))
        ledgers = [sorted((folder / "ledgers").glob("*.json")) for folder in (out, tmp_path / "whole")]
        assert [file.read_bytes() for file in ledgers[0]] == [file.read_bytes() for file in ledgers[1]]


@pytest.mark.parametrize("fraction", [0.5, 1.0])  # what was measured of those who are away is kept too
def test_resuming_again_and_again_changes_nothing(tmp_path: Path, fraction) -> None:
    config = tiny(*VPDR, "run.rounds=4", f"participation.fraction={fraction}")
    whole = run_federation(config, tmp_path / "whole").record
    result = run_federation(config, tmp_path / "steps", options=RunOptions(stop=StopAfter(1)))
    while result.record is None:
        result = run_federation(config, tmp_path / "steps", resume=True, options=RunOptions(stop=StopAfter(1)))
    assert timeless(result.record) == timeless(whole)
    assert timeless(run_federation(config, tmp_path / "steps", resume=True).record) == timeless(whole)


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    config = tiny()
    run_federation(config, tmp_path / "run")
    before = (tmp_path / "run" / "record.json").read_bytes()
    with pytest.raises(
        InvalidInput, match=r"already holds a run; add --resume \(resume=True\), or choose another directory"
    ):
        run_federation(config, tmp_path / "run")
    assert (tmp_path / "run" / "record.json").read_bytes() == before


def test_a_checkpoint_of_another_config_is_refused(tmp_path: Path) -> None:
    config = tiny("run.rounds=4")
    run_federation(config, tmp_path / "run", options=RunOptions(stop=StopAfter(1)))
    other = dataclasses.replace(config, run=dataclasses.replace(config.run, seed=9))
    with pytest.raises(InvalidInput, match="belongs to another plan"):
        run_federation(other, tmp_path / "run", resume=True)
    assert "seed = 0" in (tmp_path / "run" / "plan.toml").read_text()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    config = tiny("run.rounds=4")
    run_federation(config, tmp_path / "run", options=RunOptions(stop=StopAfter(1)))
    checkpoint = tmp_path / "run" / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(DamagedFile, match="damaged"):
        run_federation(config, tmp_path / "run", resume=True)


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"cannot write .* choose a folder"):
        run_federation(tiny(), tmp_path / "file" / "run")


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny("run.rounds=4")
    run_federation(config, tmp_path / "run", options=RunOptions(stop=StopAfter(1)))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InvalidInput, match="No space left on device"):
        run_federation(config, tmp_path / "run", resume=True)
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert after == before


def test_a_finished_run_of_another_config_is_not_resumed(tmp_path: Path) -> None:
    run_federation(tiny(), tmp_path / "run")
    with pytest.raises(InvalidInput, match="belongs to another plan"):
        run_federation(tiny("run.seed=3"), tmp_path / "run", resume=True)
