"""Simulated owners: folders whose policies allow exactly what a plan asks for, and runs over them."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vpdr.data import Manifest
from vpdr.data.manifest_file import write_manifest
from vpdr.engines.seats import seats_of
from vpdr.files import cannot_write, write_atomically
from vpdr.flower.client_app import HOMES, client_app, home_name
from vpdr.flower.judgement import selection_cost
from vpdr.flower.policy import DIVIDED
from vpdr.flower.post import ServerTerms, TooFew
from vpdr.flower.serve import Told, serve
from vpdr.plan.combinations import expected_level
from vpdr.plan.plan import Plan
from vpdr.plan.values import merged
from vpdr.privacy import Noise
from vpdr.progress import quiet
from vpdr.records.toml_text import toml_text
from vpdr.rng import Streams


def agreeing_policy(plan: Plan, name: str, place: int) -> dict[str, Any]:
    """The policy of an owner who allows this plan, once."""
    return {
        "name": name,
        "budget": {
            "epsilon": plan.budget.epsilon,
            "delta": plan.budget.delta,
            "accountant": plan.budget.accountant,
            **_apart(plan),
            "adjacency": plan.budget.adjacency,
        },
        "allow": {
            "mechanisms": [plan.mechanism.kind],
            "rounds": plan.run.rounds,
            "guarantee": str(expected_level(plan)),
            "simulation": plan.release.noise != Noise.SYSTEM,
            "metrics": "everything",
        },
        "data": {
            "place": place,
            "benchmark": plan.benchmark.kind,
            "settings": {
                **{key: value for key, value in asdict(plan.benchmark).items() if key != "kind"},
                "root": _absolute(plan.benchmark.root),
                "manifest": _absolute(plan.benchmark.manifest),
            },
            "weights": plan.model.weights,
            "device": plan.run.device,
        },
    }


def _apart(plan: Plan) -> dict[str, float]:
    """The part of ε that the plan spends on selections, where the accountant needs it set apart."""
    if plan.budget.accountant not in DIVIDED:
        return {}
    return {"selection": selection_cost(plan) / plan.budget.epsilon}


def _absolute(path: str) -> str:
    """Nodes have working folders of their own."""
    return str(Path(path).expanduser().resolve()) if path else ""


def simulated_homes(plan: Plan, root: Path) -> list[Path]:
    """A folder for each client of the plan's benchmark; one that is there already keeps its ledger."""
    seats = seats_of(plan, Streams(plan.run.seed), quiet)
    names, places = sorted(seats.clients), list(seats.clients)
    homes = [root / home_name(part) for part in range(len(names))]
    for home, name in zip(homes, names, strict=True):
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(home, error) from error
        if not (home / "policy.toml").exists():
            settled = _settled(plan, seats.manifest, root)
            text = toml_text(agreeing_policy(settled, name, places.index(name)))
            write_atomically(home / "policy.toml", text.encode(), mode=0o600)
    return homes


def _settled(plan: Plan, manifest: Manifest | None, root: Path) -> Plan:
    """The plan with its division as a file of the owners, for whom it is drawn once."""
    if manifest is None or plan.benchmark.manifest:
        return plan
    file = root / "manifest.json"
    if not file.exists():
        write_manifest(file, manifest)
    return Plan.from_data(merged(plan.to_data(), {"benchmark": {"manifest": str(file)}}))


def simulate_in_process(
    plan: Plan, out: Path, *, resume: bool = False, told: Told = lambda _: None
) -> dict[str, Any]:
    """The plan over Flower's messages, all in this process; the numbers are those of `vpdr run`."""
    from vpdr.flower.grid import InProcessGrid

    homes = simulated_homes(plan, out / "nodes")
    grid = InProcessGrid(client_app(), homes)
    terms = ServerTerms(clients=len(homes), minimum=len(homes), patience=0.0)
    return serve(grid, plan, out, terms=terms, resume=resume, told=told)


def simulate_on_ray(
    plan: Plan, out: Path, *, resume: bool = False, told: Told = lambda _: None, cores: int = 0
) -> dict[str, Any]:
    """The same with Flower's simulation engine: clients in Ray's worker processes."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    homes = simulated_homes(plan, out / "nodes")
    terms = ServerTerms(clients=len(homes), minimum=len(homes))
    found: list[dict[str, Any]] = []
    app = ServerApp()

    @app.main()
    def main(grid: Any, _: Any) -> None:
        found.append(serve(grid, plan, out, terms=terms, resume=resume, told=told))

    os.environ[HOMES] = str((out / "nodes").resolve())  # Ray's workers inherit it
    resources: dict[str, dict[str, Any]] = {
        "init_args": {"num_cpus": cores or os.cpu_count() or 1, "include_dashboard": False},
        "client_resources": {"num_cpus": 1},
    }
    run_simulation(app, client_app(), num_supernodes=len(homes), backend_config=resources)
    if not found:
        raise TooFew("the simulation ended without a result; its own messages say why")
    return found[0]
