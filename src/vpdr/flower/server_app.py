"""The Flower server app; its results are files, since Flower returns nothing."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpdr.config import ExperimentOptions, RunConfig, load_experiment
from vpdr.errors import InvalidInput, VpdrError
from vpdr.flower.nodes import ServerConfig
from vpdr.flower.rounds import serve
from vpdr.io import json_bytes, write_atomically
from vpdr.validation import coerce

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp


DONE_FILE = "ended.json"  # written last, after success and failure


def server_app(config_file: Path) -> "ServerApp":
    """A Flower server app for one configuration.

    Args:
        config_file: the configuration as TOML; the `plan.toml` of the app directory.

    Returns:
        The app. Flower's run config holds `out`, an absolute path for the results, `resume`, and the
        fields of `ServerConfig` with dashes.
    """
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: "Grid", context: "Context") -> None:
        out = _output_dir(context.run_config)
        try:
            config = load_single_config(str(config_file))
            server_config = parse_server_config(context.run_config)
            resume = bool(context.run_config.get("resume", False))
            record = serve(grid, config, out, server_config=server_config, resume=resume, on_message=_log_message)
            from vpdr.report.html import write_run_report

            write_run_report(record, out)
        except VpdrError as error:
            _write_done_file(out, str(error))
            raise
        _write_done_file(out, "")

    return app


def load_single_config(source: str, settings: tuple[str, ...] = ()) -> RunConfig:
    """The configuration of a preset or file that describes one run with one seed."""
    experiment = load_experiment(source, ExperimentOptions(settings=settings))
    if not experiment.is_single_run:
        raise InvalidInput(
            f"{source} compares {len(experiment.method_configs)} methods and {len(experiment.seeds)} seeds; "
            "Flower runs one plan with one seed, such as paper or the plan.toml of a run"
        )
    return experiment.method_configs[0].with_seed(experiment.seeds[0])


def parse_server_config(run_config: Mapping[str, Any]) -> ServerConfig:
    """The server settings in Flower's run config."""
    values = {}
    for field in fields(ServerConfig):
        key = field.name.replace("_", "-")
        if key in run_config:
            values[field.name] = coerce(key, run_config[key], field.type)
    return ServerConfig(**values)


def _output_dir(run_config: Mapping[str, Any]) -> Path:
    out = Path(str(run_config.get("out", "")))
    if not out.is_absolute():
        raise InvalidInput(f"out must be an absolute path on the server's machine, got {str(out)!r}")
    return out


def _log_message(entry: Mapping[str, Any]) -> None:
    from logging import INFO

    from flwr.supercore import log

    absent = {**entry["missing"], **entry["dropped"], **entry["silent"]}
    reasons = ", ".join(f"{name}: {reason}" for name, reason in absent.items())
    details = f" ({reasons})" if reasons else ""
    log(INFO, "message %s: %s answers%s", entry["message"], entry["answered"], details)


def _write_done_file(out: Path, error: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / DONE_FILE, json_bytes({"ok": not error, "error": error}))
