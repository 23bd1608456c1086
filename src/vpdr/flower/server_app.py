"""The server as an app that Flower runs; its results are files, since Flower hands nothing back."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpdr.errors import InvalidInput, VpdrError
from vpdr.files import write_atomically
from vpdr.flower.post import ServerTerms
from vpdr.flower.serve import serve
from vpdr.plan import Plan, load_experiment
from vpdr.plan.experiment import Wishes
from vpdr.plan.values import fitted
from vpdr.records.store import json_bytes

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp

ENDED = "ended.json"  # written last, whatever happened, so that a caller knows when to stop waiting


def server_app(plan_file: Path) -> "ServerApp":
    """A server for any Flower engine; the run's configuration says where results go and how long to wait."""
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: "Grid", context: "Context") -> None:
        out = _out(context.run_config)
        try:
            plan = single_plan(str(plan_file))
            terms = terms_of(context.run_config)
            resume = bool(context.run_config.get("resume", False))
            record = serve(grid, plan, out, terms=terms, resume=resume, told=_log)
            _report(record, out)
        except VpdrError as error:
            _end(out, str(error))
            raise
        _end(out, "")

    return app


def single_plan(source: str, settings: tuple[str, ...] = ()) -> Plan:
    """The one plan of a name or a file; Flower runs one at a time."""
    experiment = load_experiment(source, Wishes(settings=settings))
    if not experiment.single:
        raise InvalidInput(
            f"{source} compares {len(experiment.arms)} arms and {len(experiment.seeds)} seeds; Flower runs "
            "one plan with one seed, such as paper or the plan.toml of a run"
        )
    return experiment.arms[0].seeded(experiment.seeds[0])


def terms_of(config: Mapping[str, Any]) -> ServerTerms:
    """How long to wait and for whom, from flat settings with dashes, as Flower has them."""
    found = {}
    for each in fields(ServerTerms):
        name = each.name.replace("_", "-")
        if name in config:
            found[each.name] = fitted(name, config[name], each.type)
    return ServerTerms(**found)


def _out(config: Mapping[str, Any]) -> Path:
    out = Path(str(config.get("out", "")))
    if not out.is_absolute():
        raise InvalidInput(f"out must be an absolute path on the server's machine, got {str(out)!r}")
    return out


def _log(heard: Mapping[str, Any]) -> None:
    from logging import INFO

    from flwr.supercore import log

    absent = {**heard["missing"], **heard["dropped"], **heard["silent"]}
    told = ", ".join(f"{name}: {why}" for name, why in absent.items())
    log(INFO, "message %s: %s answers%s", heard["message"], heard["answered"], f" ({told})" if told else "")


def _report(record: Mapping[str, Any], out: Path) -> None:
    from vpdr.report.files import write_run

    write_run(record, out)


def _end(out: Path, error: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / ENDED, json_bytes({"ok": not error, "error": error}))
