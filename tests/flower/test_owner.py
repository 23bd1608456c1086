"""The owner decides: policy, ledger, dataset, lock."""

import fcntl
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.flower.conftest import RUN, changed, one_home, opening, paid, tiny, with_features
from vpdr.errors import DamagedFile, InvalidInput
from vpdr.flower.errand import Errand
from vpdr.flower.home import RUNS_KEPT, Home
from vpdr.flower.judgement import judge
from vpdr.flower.node import answer, greet
from vpdr.flower.policy import DataTerms, read_policy
from vpdr.flower.refusals import Code, Refused
from vpdr.flower.samples import fingerprint
from vpdr.privacy import (
    Adjacency,
    Basis,
    Budget,
    BudgetExceeded,
    Counts,
    EncoderKind,
    Gaussian,
    Pure,
    Receipt,
    Terms,
)
from vpdr.privacy.accountants import Exact

POLICY = """
name = "hospital-a"

[budget]
epsilon = 1.0
delta = 1e-5
adjacency = "replace-same-label"

[allow]
mechanisms = ["igpp", "vpp", "rapp"]
rounds = 20
guarantee = "conditional"
min_class_count = 2

[data]
benchmark = "synthetic"
"""
FINE = ("release.noise=system", "release.min_count=2")


@pytest.fixture
def policy(tmp_path: Path):
    (tmp_path / "policy.toml").write_text(POLICY)
    return read_policy(tmp_path / "policy.toml")


def test_a_modest_plan_passes(policy) -> None:
    judge(policy, tiny(*FINE))
    judge(policy, tiny(*FINE, "mechanism.kind=vpp", "mechanism.selection=public", "run.rounds=20"))
    judge(policy, tiny("framework.kind=local", "mechanism.kind=none"))  # nothing leaves


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (("budget.epsilon=100",), "epsilon"),
        (("budget.delta=1e-3",), "delta"),
        (("mechanism.kind=none",), "mechanism"),
        (("run.rounds=1000",), "rounds"),
        (("release.noise=seeded",), "simulation"),
        (("release.min_count=1",), "min-class-count"),
        (("release.min_count=1", "release.summariser=sums"), "min-class-count"),
        (
            (
                "mechanism.kind=rapp",
                "release.encoder=public",
                "release.summariser=sums",
                "release.min_count=1",
            ),
            "min-class-count",
        ),
        (("mechanism.kind=vpp",), "selection"),
        (("framework.kind=fedplvm", "release.min_count=1"), "guarantee"),
        (("mechanism.kind=vpp", "mechanism.selection=oracle"), "guarantee"),
        (("budget.adjacency=replace-one", "release.summariser=sums", "release.min_count=1"), "adjacency"),
        (("benchmark.kind=quickstart",), "benchmark"),
    ],
)
def test_a_plan_that_asks_for_more_is_refused(policy, settings, code) -> None:
    with pytest.raises(Refused) as refusal:
        judge(policy, tiny(*FINE, *settings))
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "hospital-a"', "", "name must be a plain word"),
        ('name = "hospital-a"', 'name = "../b"', "name must be a plain word"),
        ("rounds = 20", "round = 20", "unknown setting in [allow]: 'round'; did you mean 'rounds'?"),
        ("rounds = 20", "rounds = 0", "rounds must be at least 1"),
        ("epsilon = 1.0", "epsilon = -1.0", "epsilon"),
        ('["igpp", "vpp", "rapp"]', '["igp"]', "unknown mechanism: 'igp'"),
        ('["igpp", "vpp", "rapp"]', '"igpp"', "must be a list of names"),
        ('"conditional"', '"fine"', "unknown guarantee"),
        ('benchmark = "synthetic"', 'benchmark = "a"\nfeatures = "b"', "not both"),
        ('benchmark = "synthetic"', 'features = "x.npz"', "classes must be at least 1"),
        ("[data]", "[dat]", "unknown entry"),
        ("[budget]", "[budget", "not valid TOML"),
        ("delta = 1e-5", 'delta = 1e-5\naccountant = "joint"', "choose one of exact, rdp"),
        ("delta = 1e-5", 'delta = 1e-5\naccountant = "rdp"\nselection = 0.1', "is for accountant exact"),
        ("delta = 1e-5", "delta = 1e-5\nselection = 1.0", "selection must lie in [0, 1)"),
    ],
)
def test_a_policy_that_is_not_understood_is_refused(tmp_path: Path, old, new, words) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace(old, new))
    with pytest.raises(InvalidInput) as error:
        read_policy(tmp_path / "policy.toml")
    assert words in str(error.value)


def test_without_a_policy_nothing_is_answered(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refusal:
        greet(Home(tmp_path), tiny())
    assert refusal.value.code is Code.NO_POLICY


def test_a_refused_plan_touches_no_data(tmp_path: Path, monkeypatch) -> None:
    home = one_home(tmp_path, tiny())

    def touched(*_: object) -> None:
        raise AssertionError("data were touched")

    monkeypatch.setattr("vpdr.flower.node.seat_of", touched)
    monkeypatch.setattr("vpdr.flower.node.fingerprint", touched)
    with pytest.raises(Refused) as refusal:
        answer(home, opening(tiny("budget.epsilon=100")))
    assert refusal.value.code is Code.EPSILON
    assert not (home.path / "ledger.json").exists()


def test_a_second_run_cannot_spend_the_budget_again(tmp_path: Path) -> None:
    plan = tiny("run.rounds=1")
    home = one_home(tmp_path, plan)
    assert answer(home, opening(plan)).upload is not None
    again = answer(home, opening(plan, run="f" * 16))
    assert again.upload is None
    assert again.facts["why"] == "budget"
    assert paid(home) == 1


def test_deleted_run_state_gives_nothing_back(tmp_path: Path) -> None:
    plan = tiny("run.rounds=1")
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    for state in (home.path / "runs").iterdir():
        state.unlink()
    assert answer(Home(home.path), opening(plan)).facts["why"] == "budget"
    assert paid(home) == 1


def test_another_budget_needs_another_folder(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    changed(home.path, ("epsilon = 1.0", "epsilon = 5.0"))
    with pytest.raises(InvalidInput, match="a budget is not changed by asking again"):
        answer(home, opening(plan, hop=2))


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


def test_a_silo_brings_its_own_features(tmp_path: Path) -> None:
    plan = tiny()
    home = with_features(tmp_path, plan)
    assert greet(home, plan) == "hospital-a"
    upload = answer(home, opening(plan)).upload
    assert upload.labels.tolist() == [0, 1, 2, 3]
    with pytest.raises(Refused) as refusal:
        answer(home, opening(tiny("model.dim=16"), run="a" * 16))
    assert refusal.value.code is Code.BENCHMARK


def test_nobody_knows_the_projection_of_a_file(tmp_path: Path) -> None:
    plan = tiny(source="strict")
    home = with_features(tmp_path, plan)
    assert refused(home, opening(tiny("mechanism.metric=projection", source="strict"))) is Code.BENCHMARK
    assert paid(home) == 0
    assert answer(home, opening(plan)).upload is not None


def test_a_folder_belongs_to_one_dataset(tmp_path: Path) -> None:
    plan = tiny()
    home = with_features(tmp_path, plan)
    answer(home, opening(plan))
    told = (home.path / "dataset.json").read_text()
    with np.load(tmp_path / "silo.npz") as found:
        arrays = dict(found)
    arrays["train_x"][0] += 1
    np.savez(tmp_path / "silo.npz", **arrays)
    with pytest.raises(Refused) as refusal:
        answer(home, opening(plan, run="b" * 16))
    assert refusal.value.code is Code.OTHER_DATA
    assert (home.path / "dataset.json").read_text() == told
    assert paid(home) == 1


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


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    state = home.path / "runs" / f"{RUN}.pt"
    state.write_bytes(state.read_bytes()[:-7])
    with pytest.raises(DamagedFile, match="damaged"):
        answer(home, opening(plan, hop=2))


@pytest.mark.parametrize(
    ("metrics", "names"),
    [("nothing", {"epsilon"}), ("accuracy", {"losses", "accuracy", "epsilon", "seconds"})],
)
def test_measurements_stay_at_home_unless_the_owner_says_so(tmp_path: Path, metrics, names) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    changed(home.path, ('metrics = "everything"', f'metrics = "{metrics}"'))
    assert set(answer(home, opening(plan)).facts["measured"]) == names


def test_a_crash_between_paying_and_saving_loses_an_upload_not_a_cost(tmp_path: Path, monkeypatch) -> None:
    plan = tiny("run.rounds=2", "release.noise=system")
    home = one_home(tmp_path, plan)

    def crash(*_: object) -> None:
        raise OSError("power cut")

    with monkeypatch.context() as broken:
        broken.setattr(Home, "save", crash)
        with pytest.raises(OSError, match="power cut"):
            answer(home, opening(plan))
    assert paid(home) == 1
    first = answer(home, opening(plan)).upload
    assert paid(home) == 2
    anchors = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    second = answer(home, opening(plan, hop=2, learn=True, broadcast=anchors)).upload
    assert torch.equal(first.vectors, second.vectors)  # the budget is spent: what is public is sent again
    assert paid(home) == 2


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_policy_that_others_can_write_is_none(tmp_path: Path, mode: int) -> None:
    home = one_home(tmp_path, tiny())
    (home.path / "policy.toml").chmod(mode)
    with pytest.raises(Refused) as refusal:
        greet(home, tiny())
    assert refusal.value.code is Code.NO_POLICY


def refused(home: Home, errand: Errand) -> Code:
    with pytest.raises(Refused) as refusal:
        answer(home, errand)
    return refusal.value.code


def test_a_ledger_that_is_gone_is_noticed(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    (home.path / "ledger.json").unlink()
    assert refused(home, opening(plan, hop=2)) is Code.LEDGER
    (home.path / "dataset.json").unlink()
    assert refused(home, opening(plan, run="f" * 16)) is Code.LEDGER
    assert not (home.path / "ledger.json").exists()


def test_an_older_copy_of_a_ledger_is_noticed(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    answer(home, opening(plan))
    copy = (home.path / "ledger.json").read_bytes()
    answer(home, opening(plan, hop=2))
    (home.path / "ledger.json").write_bytes(copy)
    assert refused(home, opening(plan, hop=3)) is Code.LEDGER
    assert paid(home) == 1


def test_epsilon_is_divided_before_the_first_release(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace("delta = 1e-5", "delta = 1e-5\nselection = 0.25"))
    policy = read_policy(tmp_path / "policy.toml")
    judge(policy, tiny(*FINE, "mechanism.kind=vpp", "mechanism.share=0.25"))
    judge(policy, tiny(*FINE, "budget.epsilon=0.75"))
    for settings, code in [
        (("mechanism.kind=vpp", "mechanism.share=0.26"), Code.SELECTION),
        (("mechanism.kind=vpp", "mechanism.share=0.2"), Code.EPSILON),
        (("budget.epsilon=0.76",), Code.EPSILON),
    ]:
        with pytest.raises(Refused) as refusal:
            judge(policy, tiny(*FINE, *settings))
        assert refusal.value.code is code


def test_one_part_of_epsilon_is_not_spent_on_the_other(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace("delta = 1e-5", "delta = 1e-5\nselection = 0.25"))
    purse = Home(tmp_path).purse(read_policy(tmp_path / "policy.toml"))
    terms = Terms(
        adjacency=Adjacency.REPLACE_SAME_LABEL,
        encoder=EncoderKind.PUBLIC,
        counts=Counts.PUBLIC,
        basis=Basis.PROVED,
    )
    purse.charge(Receipt(events=(Pure(0.2),), terms=terms), round=1)
    fits, too_much = (Exact().multiplier(Budget(epsilon, 1e-5), 1) for epsilon in (0.749, 0.751))
    for event in (Pure(0.051), Gaussian(too_much)):
        with pytest.raises(BudgetExceeded):
            purse.charge(Receipt(events=(event,), terms=terms), round=2)
    purse.charge(Receipt(events=(Gaussian(fits), Pure(0.05)), terms=terms), round=2)
    assert purse.read().spent <= 1.0


def test_a_first_message_that_is_refused_does_not_close_the_folder(tmp_path: Path) -> None:
    plan = tiny()
    home = with_features(tmp_path, plan)
    assert refused(home, opening(tiny("model.dim=16"))) is Code.BENCHMARK
    assert answer(home, opening(plan)).upload is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"train_x": np.full((40, 12), np.nan)},
        {"train_x": np.full((40, 12), 1e30)},
        {"train_y": np.arange(40)},
        {"test_y": np.full(8, -1)},
        {"train_y": np.arange(39) % 4},
        {"train_y": np.linspace(0, 1, 40)},
        {"test_x": np.zeros(8)},
    ],
    ids=["nan", "huge", "labels", "negative", "lengths", "fractions", "shape"],
)
def test_data_are_checked_before_a_plan_can_matter(tmp_path: Path, changes) -> None:
    plan = tiny()
    home = with_features(tmp_path, plan)
    with np.load(tmp_path / "silo.npz") as found:
        arrays = dict(found)
    np.savez(tmp_path / "silo.npz", **{**arrays, **changes})
    assert refused(home, Errand(run=RUN, hop=1, plan=plan)) is Code.OWN_DATA
    assert refused(home, opening(tiny("mechanism.clip_norm=1.0"))) is Code.OWN_DATA
    assert paid(home) == 0


def test_a_repeated_answer_keeps_what_the_owner_keeps_by_now(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    assert "accuracy" in answer(home, opening(plan)).facts["measured"]
    changed(home.path, ('metrics = "everything"', 'metrics = "nothing"'))
    facts = answer(home, opening(plan)).facts
    assert (set(facts["measured"]), facts["seconds"]) == ({"epsilon"}, 0.0)


def test_a_fingerprint_looks_into_the_middle_of_files(tmp_path: Path) -> None:
    for size in (5_000, 500_000):
        file = tmp_path / str(size)
        file.write_bytes(bytes(size))
        terms = DataTerms(benchmark="digits", settings={"root": str(tmp_path)})
        before = fingerprint("a", terms)
        file.write_bytes(bytes(size // 2) + b"\1" * (size - size // 2))
        assert fingerprint("a", terms) != before


def test_a_note_can_hold_anything(tmp_path: Path) -> None:
    Home(tmp_path).note("\ud800")
    assert "ud800" in (tmp_path / "refusals.log").read_text()


def test_notes_do_not_fill_the_disk(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("vpdr.flower.home.LONGEST_LOG", 10_000)
    home = Home(tmp_path)
    for _ in range(50):
        home.note("x" * 10_000)
    assert (tmp_path / "refusals.log").stat().st_size < 11_000


def test_the_owner_sees_what_the_server_does_not(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    changed(home.path, ('metrics = "everything"', 'metrics = "nothing"'))
    answer(home, opening(plan))
    (line,) = (home.path / "measured.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["run"], told["round"]) == (RUN, 0)
    assert "head" in told["accuracy"]["own"]
