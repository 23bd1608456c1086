"""Policies: what they allow, and which files are refused."""

from pathlib import Path

import pytest

from tests.unit.flower.conftest import make_request, make_store, tiny
from tests.unit.flower.owner_cases import ALLOWED_SETTINGS, POLICY
from vpdr.flower.client_app import handle_hello, handle_request
from vpdr.flower.owner import NodeStore, Refusal, RefusalCode, check_config_against_policy, read_policy
from vpdr.validation import InvalidInput


@pytest.fixture
def policy(tmp_path: Path):
    (tmp_path / "policy.toml").write_text(POLICY)
    return read_policy(tmp_path / "policy.toml")


def test_an_allowed_config_passes(policy) -> None:
    check_config_against_policy(policy, tiny(*ALLOWED_SETTINGS))
    check_config_against_policy(
        policy, tiny(*ALLOWED_SETTINGS, "mechanism.kind=vpp", "mechanism.selection=public", "run.rounds=20")
    )
    check_config_against_policy(policy, tiny("framework.kind=local", "mechanism.kind=none"))  # no release


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
            ("mechanism.kind=rapp", "release.encoder=public", "release.summariser=sums", "release.min_count=1"),
            "min-class-count",
        ),
        (("mechanism.kind=vpp",), "selection"),
        (("framework.kind=fedplvm", "release.min_count=1"), "guarantee"),
        (("mechanism.kind=vpp", "mechanism.selection=oracle"), "guarantee"),
        (("budget.adjacency=replace-one", "release.summariser=sums", "release.min_count=1"), "adjacency"),
        (("benchmark.kind=quickstart",), "benchmark"),
    ],
)
def test_a_config_beyond_the_policy_is_refused(policy, settings, code) -> None:
    with pytest.raises(Refusal) as refusal:
        check_config_against_policy(policy, tiny(*ALLOWED_SETTINGS, *settings))
    assert refusal.value.code == code


def test_epsilon_is_split_before_the_first_release(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace("delta = 1e-5", "delta = 1e-5\nselection = 0.25"))
    policy = read_policy(tmp_path / "policy.toml")
    check_config_against_policy(policy, tiny(*ALLOWED_SETTINGS, "mechanism.kind=vpp", "mechanism.share=0.25"))
    check_config_against_policy(policy, tiny(*ALLOWED_SETTINGS, "budget.epsilon=0.75"))
    for settings, code in [
        (("mechanism.kind=vpp", "mechanism.share=0.26"), RefusalCode.SELECTION),
        (("mechanism.kind=vpp", "mechanism.share=0.2"), RefusalCode.EPSILON),
        (("budget.epsilon=0.76",), RefusalCode.EPSILON),
    ]:
        with pytest.raises(Refusal) as refusal:
            check_config_against_policy(policy, tiny(*ALLOWED_SETTINGS, *settings))
        assert refusal.value.code is code


def test_a_refused_config_reads_no_data(tmp_path: Path, monkeypatch) -> None:
    store = make_store(tmp_path, tiny())

    def fail_if_called(*_: object) -> None:
        raise AssertionError("data were read")

    monkeypatch.setattr("vpdr.flower.client_app.load_local_client", fail_if_called)
    monkeypatch.setattr("vpdr.flower.client_app.fingerprint", fail_if_called)
    with pytest.raises(Refusal) as refusal:
        handle_request(store, make_request(tiny("budget.epsilon=100")))
    assert refusal.value.code is RefusalCode.EPSILON
    assert not (store.path / "ledger.json").exists()


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
def test_an_invalid_policy_is_refused(tmp_path: Path, old, new, words) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.replace(old, new))
    with pytest.raises(InvalidInput) as error:
        read_policy(tmp_path / "policy.toml")
    assert words in str(error.value)


def test_without_a_policy_every_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refusal:
        handle_hello(NodeStore(tmp_path), tiny())
    assert refusal.value.code is RefusalCode.NO_POLICY


@pytest.mark.parametrize("mode", [0o666, 0o620, 0o602])
def test_a_policy_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    store = make_store(tmp_path, tiny())
    (store.path / "policy.toml").chmod(mode)
    with pytest.raises(Refusal) as refusal:
        handle_hello(store, tiny())
    assert refusal.value.code is RefusalCode.NO_POLICY
