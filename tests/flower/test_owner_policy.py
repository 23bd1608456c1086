"""The owner decides: what a policy allows, and what it may not say."""

from pathlib import Path

import pytest

from tests.flower.conftest import one_home, opening, tiny
from tests.flower.owner_cases import FINE, POLICY
from vpdr.errors import InvalidInput
from vpdr.flower.home import Home
from vpdr.flower.judgement import judge
from vpdr.flower.node import answer, greet
from vpdr.flower.policy import read_policy
from vpdr.flower.refusals import Code, Refused


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


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_policy_that_others_can_write_is_none(tmp_path: Path, mode: int) -> None:
    home = one_home(tmp_path, tiny())
    (home.path / "policy.toml").chmod(mode)
    with pytest.raises(Refused) as refusal:
        greet(home, tiny())
    assert refusal.value.code is Code.NO_POLICY
