"""A run goes forward once, one message at a time, from a folder that is the owner's alone."""

import fcntl
import os
from pathlib import Path

import pytest
import torch

from tests.flower.conftest import RUN, one_home, opening, paid, tiny
from vpdr.errors import DamagedFile
from vpdr.flower.errand import Errand
from vpdr.flower.home import RUNS_KEPT, Home
from vpdr.flower.node import answer
from vpdr.flower.refusals import Code, Refused


def test_a_message_that_is_repeated_costs_nothing_and_says_the_same(tmp_path: Path) -> None:
    plan = tiny("release.noise=system")
    home = one_home(tmp_path, plan)
    first = answer(home, opening(plan))
    second = answer(Home(home.path), opening(plan))
    assert torch.equal(first.upload.vectors, second.upload.vectors)
    assert first.facts == second.facts
    assert paid(home) == 1


def test_a_run_goes_forward_with_one_plan(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan, hop=2))
    for errand, code in [
        (opening(plan), Code.ROUND_ORDER),
        (opening(tiny("run.seed=1"), hop=3), Code.OTHER_PLAN),
    ]:
        with pytest.raises(Refused) as refusal:
            answer(home, errand)
        assert refusal.value.code is code
    assert paid(home) == 1


def test_a_busy_client_says_so(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    descriptor = os.open(home.path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(Refused) as refusal:
            answer(home, opening(plan))
    finally:
        os.close(descriptor)
    assert refusal.value.code is Code.BUSY
    assert answer(home, opening(plan)).upload is not None


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    state = home.path / "runs" / f"{RUN}.pt"
    state.write_bytes(state.read_bytes()[:-7])
    with pytest.raises(DamagedFile, match="damaged"):
        answer(home, opening(plan, hop=2))


def test_the_folder_is_the_owners_alone(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    for file in home.path.rglob("*"):
        if file.is_file() and file.name != "policy.toml":
            assert file.stat().st_mode & 0o077 == 0, file


def test_many_runs_do_not_fill_the_disk(tmp_path: Path) -> None:
    plan = tiny("framework.kind=local")
    home = one_home(tmp_path, plan)
    for number in range(RUNS_KEPT + 2):
        answer(home, Errand(run=f"{number:016x}", hop=1, plan=plan))
    assert len(list((home.path / "runs").iterdir())) == RUNS_KEPT
