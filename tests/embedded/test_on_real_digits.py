"""The embedded benchmark: real digits, a real pretrained backbone, every framework and mechanism.

Features are cached in the user's cache folder; the first run computes them (about half a minute).
"""

import statistics
from functools import lru_cache
from pathlib import Path

import pytest

from vpdr.engines.runner import run_plan
from vpdr.frameworks import FRAMEWORKS
from vpdr.plan import load_experiment
from vpdr.plan.experiment import Wishes

pytestmark = pytest.mark.embedded
SEEDS = (0, 1, 2)
CHANCE = 0.1


def accuracy(folder: Path, *settings: str, seed: int = 0) -> float:
    """Average over clients of the framework's own predictor, after ten rounds."""
    base = ("benchmark.kind=quickstart", "benchmark.samples=800", "model.dim=256", "run.rounds=10")
    wishes = Wishes(settings=(*base, f"run.seed={seed}", *settings))
    plan = load_experiment("paper", wishes).arms[0].plan
    record = run_plan(plan, folder / plan.identity, resume=True).record
    return record["final"]["all"]["framework"]["average"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@lru_cache
def local(folder: Path) -> tuple[float, ...]:
    return tuple(accuracy(folder, "framework.kind=local", seed=seed) for seed in SEEDS)


@pytest.mark.parametrize("framework", sorted(set(FRAMEWORKS) - {"local"}))
def test_without_privacy_sharing_does_not_hurt(folder, framework) -> None:
    """No framework is below local training by more than its seeds and a point can explain."""
    own = [
        accuracy(folder, f"framework.kind={framework}", "mechanism.kind=none", seed=seed) for seed in SEEDS
    ]
    differences = [mine - alone for mine, alone in zip(own, local(folder), strict=True)]
    error = statistics.stdev(differences) / len(SEEDS) ** 0.5
    assert min(own) > 5 * CHANCE
    assert statistics.fmean(differences) > -(0.01 + 4.3 * error), (own, local(folder))


@pytest.mark.parametrize("regulariser", ["plain", "dcr"])
@pytest.mark.parametrize("mechanism", ["none", "igpp", "vpp"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_combination_learns(folder, framework, mechanism, regulariser) -> None:
    kinds = (f"framework.kind={framework}", f"mechanism.kind={mechanism}", f"regulariser.kind={regulariser}")
    assert accuracy(folder, *kinds) > 4 * CHANCE


def test_strict_learns_too(folder) -> None:
    strict = ("release.encoder=public", "release.summariser=sums", "release.count=1")
    found = accuracy(folder, *strict, "budget.adjacency=replace-one", "budget.require=proved")
    assert found > 5 * CHANCE
