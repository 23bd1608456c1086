"""Images and texts with real backbones, and the paths of the owner."""

import csv
from pathlib import Path

import pytest

from tests.unit.flower.conftest import tiny, without_exchange
from vpdr.config import BenchmarkSection, ExperimentOptions, RunConfig, load_experiment
from vpdr.encoder.zoo import weights_for_policy
from vpdr.federation import run_federation
from vpdr.flower.client_app import load_local_client, with_local_paths
from vpdr.flower.owner import BudgetPolicy, DataPolicy, Policy, Refusal, RefusalCode, check_config_against_policy
from vpdr.flower.simulation import simulate_in_process

SMALL = ("run.rounds=1", "train.epochs=1", "model.dim=32", "model.hidden=16", "train.batch=16")
TOPICS = ("war and peace talks", "the cup final", "shares fell on friday", "a new chip for phones")


def make_config(*settings: str) -> RunConfig:
    return (
        load_experiment("paper", ExperimentOptions(settings=("mechanism.kind=igpp", *SMALL, *settings)))
        .method_configs[0]
        .config
    )


def check_equal_records(config: RunConfig, tmp_path: Path) -> None:
    expected = run_federation(config, tmp_path / "run").record
    assert without_exchange(simulate_in_process(config, tmp_path / "flower")) == without_exchange(expected)


@pytest.mark.embedded
@pytest.mark.parametrize("adapters", ["last", "blocks"])
def test_images(tmp_path: Path, adapters: str) -> None:
    size = "benchmark.samples=40" if adapters == "blocks" else "benchmark.samples=80"
    check_equal_records(make_config("benchmark.kind=quickstart", size, f"model.adapters={adapters}"), tmp_path)


@pytest.mark.embedded
@pytest.mark.parametrize("adapters", ["last", "blocks"])
def test_texts(tmp_path: Path, adapters: str) -> None:
    (tmp_path / "news").mkdir()
    for name, count in (("train.csv", 48), ("test.csv", 16)):
        with (tmp_path / "news" / name).open("w", newline="") as file:
            rows = [(1 + n % 4, f"News {n}", f"{TOPICS[n % 4]}, said source {n}") for n in range(count)]
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    config = make_config(
        "benchmark.kind=agnews",
        f"benchmark.root={tmp_path / 'news'}",
        "benchmark.clients=2",
        "benchmark.concentration=100",
        "model.backbone=minilm",
        f"model.adapters={adapters}",
    )
    check_equal_records(config, tmp_path)


def test_every_path_is_the_owners() -> None:
    greedy = tiny("benchmark.root=/etc", "benchmark.manifest=/etc/passwd", "model.weights=hub:evil/twin")
    data = DataPolicy(benchmark="synthetic", settings={"root": "/srv/mine"})
    local_config = with_local_paths(Policy(name="a", data=data), greedy)
    assert local_config.benchmark.root == "/srv/mine"
    assert (local_config.benchmark.manifest, local_config.model.weights, local_config.run.device) == ("", "", "cpu")


def test_a_server_chooses_no_encoder_of_the_owners_machine(tmp_path: Path) -> None:
    """`hf:` names a directory or a download, so the owner has to name it too."""
    greedy = tiny("benchmark.kind=quickstart", "model.backbone=hf:evil/twin")
    owner = Policy(name="mnist", data=DataPolicy(benchmark="quickstart"))
    with pytest.raises(Refusal, match=r"set data\.weights") as refusal:
        load_local_client(owner, greedy, b"key")
    assert refusal.value.code is RefusalCode.NO_POLICY
    for named, weights in ((f"hf:{tmp_path}", str(tmp_path.resolve())), ("hf:owner/name", "hub:owner/name")):
        assert weights_for_policy(named, "") == weights
        assert weights_for_policy(named, "/srv/copy") == "/srv/copy"
    assert weights_for_policy("minilm", "") == ""


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_private_labels_are_not_split_by_a_server(adjacency: str) -> None:
    settings = ("benchmark.kind=quickstart", "benchmark.samples=40", f"budget.adjacency={adjacency}")
    config = (
        load_experiment("strict", ExperimentOptions(settings=(*settings, "release.noise=system")))
        .method_configs[0]
        .config
    )
    budget = BudgetPolicy(adjacency=adjacency)
    greedy = ("benchmark.test_fraction=0.5", "benchmark.skew=label", "benchmark.minimum=30")
    other = load_experiment("strict", ExperimentOptions(settings=(*settings, *greedy))).method_configs[0].config
    bare = Policy(name="photos", budget=budget, data=DataPolicy(benchmark="quickstart"))
    check_config_against_policy(bare, config)  # sample by sample, with the owner's key and settings
    section = with_local_paths(bare, other).benchmark
    assert section == BenchmarkSection(kind="quickstart", skew="domain", assignment="sample_hash")
    for by_labels in ({"skew": "label"}, {"skew": "pooled"}, {"per_domain": 2}):
        shared = Policy(name="photos", budget=budget, data=DataPolicy(benchmark="quickstart", settings=by_labels))
        with pytest.raises(Refusal) as refusal:
            check_config_against_policy(shared, config)
        assert refusal.value.code is RefusalCode.DIVISION
    own = DataPolicy(benchmark="quickstart", settings={"manifest": "/srv/split.json", "samples": 60})
    own_split = Policy(name="photos", budget=budget, data=own)
    check_config_against_policy(own_split, config)
    section = with_local_paths(own_split, other).benchmark
    assert section == BenchmarkSection(kind="quickstart", manifest="/srv/split.json", samples=60)
    public = Policy(name="photos", data=DataPolicy(benchmark="quickstart"))
    check_config_against_policy(public, make_config("benchmark.kind=quickstart", "release.noise=system"))


@pytest.mark.embedded
def test_simulated_owners_keep_the_split(tmp_path: Path) -> None:
    settings = (*SMALL, "benchmark.kind=quickstart", "benchmark.samples=40")
    check_equal_records(
        load_experiment("strict", ExperimentOptions(settings=settings)).method_configs[0].config, tmp_path
    )
