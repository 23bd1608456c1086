"""Runs over Flower on one machine, with node directories whose policies allow exactly this run."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vpdr.config import RunConfig, guarantee_level
from vpdr.data import Split, write_split
from vpdr.federation import load_clients
from vpdr.flower.client_app import NODE_DIRS_VAR, client_app, node_dir_name
from vpdr.flower.nodes import NotEnoughClients, ServerConfig
from vpdr.flower.policy import SPLIT_ACCOUNTANTS, selection_cost
from vpdr.flower.rounds import MessageCallback, serve
from vpdr.io import dump_toml, write_atomically, write_error
from vpdr.privacy import NoiseOrigin
from vpdr.rng import Streams
from vpdr.types import no_progress
from vpdr.validation import deep_merge


def policy_for_run(config: RunConfig, name: str, position: int) -> dict[str, Any]:
    """The content of a policy file that allows this run, once."""
    selection = {}
    if config.budget.accountant in SPLIT_ACCOUNTANTS:
        selection = {"selection": selection_cost(config) / config.budget.epsilon}
    return {
        "name": name,
        "budget": {
            "epsilon": config.budget.epsilon,
            "delta": config.budget.delta,
            "accountant": config.budget.accountant,
            **selection,
            "adjacency": config.budget.adjacency,
        },
        "allow": {
            "mechanisms": [config.mechanism.kind],
            "rounds": config.run.rounds,
            "guarantee": str(guarantee_level(config)),
            "simulation": config.release.noise != NoiseOrigin.SYSTEM,
            "metrics": "everything",
        },
        "data": {
            "place": position,
            "benchmark": config.benchmark.kind,
            "settings": {
                **{key: value for key, value in asdict(config.benchmark).items() if key != "kind"},
                "root": _absolute_path(config.benchmark.root),
                "manifest": _absolute_path(config.benchmark.manifest),
            },
            "weights": config.model.weights,
            "device": config.run.device,
        },
    }


def _absolute_path(path: str) -> str:
    """An absolute path, since nodes may have other working directories."""
    return str(Path(path).expanduser().resolve()) if path else ""


def create_simulated_nodes(config: RunConfig, root: Path) -> list[Path]:
    """A directory for each client of the run's benchmark; existing ones keep policy and ledger."""
    setups = load_clients(config, Streams(config.run.seed), no_progress)
    names, positions = sorted(setups.clients), list(setups.clients)
    node_dirs = [root / node_dir_name(index) for index in range(len(names))]
    for node_dir, name in zip(node_dirs, names, strict=True):
        try:
            node_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(node_dir, error) from error
        if not (node_dir / "policy.toml").exists():
            local_config = _with_stored_split(config, setups.split, root)
            text = dump_toml(policy_for_run(local_config, name, positions.index(name)))
            write_atomically(node_dir / "policy.toml", text.encode(), mode=0o600)
    return node_dirs


def _with_stored_split(config: RunConfig, split: Split | None, root: Path) -> RunConfig:
    """The configuration with its split as a file, which all simulated owners share."""
    if split is None or config.benchmark.manifest:
        return config
    file = root / "manifest.json"
    if not file.exists():
        write_split(file, split)
    return RunConfig.from_dict(deep_merge(config.to_dict(), {"benchmark": {"manifest": str(file)}}))


def simulate_in_process(
    config: RunConfig, out: Path, *, resume: bool = False, on_message: MessageCallback = lambda _: None
) -> dict[str, Any]:
    """Run a configuration over Flower's messages in this process.

    Args:
        config: the run.
        out: directory of the results; `out/nodes` holds the node directories.
        resume: continue the run in `out`.
        on_message: called with the log entry of each message.

    Returns:
        The record; its numbers equal those of `vpdr run`.
    """
    from vpdr.flower.grid import InProcessGrid

    node_dirs = create_simulated_nodes(config, out / "nodes")
    grid = InProcessGrid(client_app(), node_dirs)
    server_config = ServerConfig(clients=len(node_dirs), minimum=len(node_dirs), patience=0.0)
    return serve(grid, config, out, server_config=server_config, resume=resume, on_message=on_message)


def simulate_on_ray(
    config: RunConfig, out: Path, *, resume: bool = False, on_message: MessageCallback = lambda _: None, cores: int = 0
) -> dict[str, Any]:
    """As `simulate_in_process`, with Flower's simulation engine: clients run in Ray's worker processes."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    node_dirs = create_simulated_nodes(config, out / "nodes")
    server_config = ServerConfig(clients=len(node_dirs), minimum=len(node_dirs))
    records: list[dict[str, Any]] = []
    app = ServerApp()

    @app.main()
    def main(grid: Any, _: Any) -> None:
        record = serve(grid, config, out, server_config=server_config, resume=resume, on_message=on_message)
        records.append(record)

    os.environ[NODE_DIRS_VAR] = str((out / "nodes").resolve())  # Ray's workers inherit it
    resources: dict[str, dict[str, Any]] = {
        "init_args": {"num_cpus": cores or os.cpu_count() or 1, "include_dashboard": False},
        "client_resources": {"num_cpus": 1},
    }
    run_simulation(app, client_app(), num_supernodes=len(node_dirs), backend_config=resources)
    if not records:
        raise NotEnoughClients("the simulation ended without a result; see its messages above")
    return records[0]
