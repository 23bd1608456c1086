"""The embedded benchmark: real digits, a real pretrained backbone, every framework and mechanism.

Features are cached in the user's cache directory; the first run computes them (about half a minute).
"""

import statistics
from functools import lru_cache
from pathlib import Path

import pytest

from vpdr.config import ExperimentOptions, load_experiment
from vpdr.federation import run_federation
from vpdr.frameworks import FRAMEWORKS

pytestmark = pytest.mark.embedded
SEEDS = (0, 1, 2)
CHANCE = 0.1


def accuracy(runs_dir: Path, *settings: str, seed: int = 0) -> float:
    """Average over clients of the framework's own predictor, after ten rounds."""
    base = ("benchmark.kind=quickstart", "benchmark.samples=800", "model.dim=256", "run.rounds=10")
    options = ExperimentOptions(settings=(*base, f"run.seed={seed}", *settings))
    config = load_experiment("paper", options).method_configs[0].config
    record = run_federation(config, runs_dir / config.config_hash, resume=True).record
    return record.final["all"]["framework"].average


@pytest.fixture(scope="session")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@lru_cache
def local(runs_dir: Path) -> tuple[float, ...]:
    return tuple(accuracy(runs_dir, "framework.kind=local", seed=seed) for seed in SEEDS)


@pytest.mark.parametrize("framework", sorted(set(FRAMEWORKS) - {"local"}))
def test_without_privacy_sharing_does_not_hurt(runs_dir, framework) -> None:
    """No framework is below local training by more than its seeds and a point can explain."""
    own = [accuracy(runs_dir, f"framework.kind={framework}", "mechanism.kind=none", seed=seed) for seed in SEEDS]
    differences = [shared - alone for shared, alone in zip(own, local(runs_dir), strict=True)]
    error = statistics.stdev(differences) / len(SEEDS) ** 0.5
    assert min(own) > 5 * CHANCE
    assert statistics.fmean(differences) > -(0.01 + 4.3 * error), (own, local(runs_dir))


@pytest.mark.parametrize("regulariser", ["plain", "dcr"])
@pytest.mark.parametrize("mechanism", ["none", "igpp", "vpp"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_combination_learns(runs_dir, framework, mechanism, regulariser) -> None:
    kinds = (f"framework.kind={framework}", f"mechanism.kind={mechanism}", f"regulariser.kind={regulariser}")
    assert accuracy(runs_dir, *kinds) > 4 * CHANCE


def test_strict_learns_too(runs_dir) -> None:
    strict = ("release.encoder=public", "release.summariser=sums", "release.count=1")
    average = accuracy(runs_dir, *strict, "budget.adjacency=replace-one", "budget.require=proved")
    assert average > 5 * CHANCE
