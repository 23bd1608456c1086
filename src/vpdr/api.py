"""The Python interface: everything that the command line does, as functions.

The command line parses its options, calls these functions and prints what they return.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vpdr import audits, io, privacy, rng
from vpdr.attacks import AttackCallbacks, AttackConfig, AttackFactory, attack_finished_run
from vpdr.config import Experiment, ExperimentOptions, MethodConfig, RunConfig, load, load_experiment, rules
from vpdr.config.methods import check_names
from vpdr.data import Dataset
from vpdr.federation import Callbacks, JobResult, RunOptions, RunResult, build, load_clients, never_stop, simulate
from vpdr.federation.run import make_jobs, run_federation, sweep
from vpdr.records import AttackReport, RunDir, RunRecord, UploadStore, finished_record
from vpdr.report.html import write_attack_figures, write_comparison_report, write_run_report
from vpdr.report.stats import ComparisonSummary
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import InvalidInput, check_known


def load_config(
    source: str | Mapping[str, object] = "paper", *settings: str, data: Mapping[str, Path | str] | Sequence[str] = ()
) -> RunConfig:
    """Read a preset, a TOML file or a dict of tables, and change some settings.

    `paper` and `authors` are VPDR (mechanism vpp, regulariser dcr) unless settings name a mechanism or a
    regulariser, or a framework that uploads nothing.

    Args:
        source: `paper`, `authors`, `strict`, the path of a TOML file, or what such a file contains.
        settings: `section.key=value`, as with `--set`.
        data: the path of a benchmark's files or of your own data, such as `{"folder": "photos"}`; also as
            `benchmark=path`, as with `--data`.

    Returns:
        Every setting of one run.

    Raises:
        InvalidInput: an unknown name, an impossible combination, a setting that would change nothing, or a
            source of several runs.

    Guarantee: no data are read, and settings that contradict each other are refused here, before any run.

    >>> config = load_config("paper", "mechanism.kind=vpp", "run.rounds=3")
    >>> config.mechanism.kind, config.run.rounds, config.budget.epsilon
    ('vpp', 3, 1.0)
    """
    paths = [f"{name}={path}" for name, path in data.items()] if isinstance(data, Mapping) else data
    experiment = load_experiment(source, ExperimentOptions(settings=settings, data=paths))
    if not experiment.is_single_run:
        name = source if isinstance(source, str) else "this dict"
        raise InvalidInput(f"{name} describes several runs; use vpdr.compare, or a preset such as paper")
    return experiment.method_configs[0].with_seed(experiment.seeds[0])


def run(
    config: RunConfig,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    attacks: AttackConfig | None = None,
    options: RunOptions | None = None,
    dataset: Dataset | None = None,
) -> RunRecord:
    """Run one config to its end.

    Args:
        config: what to run.
        out: the directory of the record, the ledgers and the report; None: nothing is written.
        resume: continue a stopped run in `out`, bit for bit.
        attacks: attacks on the uploads while it runs; they need `out`.
        options: progress, callbacks, checkpoints; without `out` there are neither checkpoints nor observers.
        dataset: data in memory, instead of those that the config names.

    Returns:
        The record, also written to `out/record.json`; docs/record.md describes its fields.

    Raises:
        InvalidInput: bad settings or data, an `out` that holds another run, or a run that was stopped.

    Guarantee:
        What the run's releases are worth is in `record.privacy`. Noise from a seed is reproducible, so
        such a run is a simulation; noise of the operating system needs `out`, where ledgers are kept.

    >>> small = ("benchmark.kind=synthetic", "benchmark.samples=30", "model.dim=8", "run.rounds=1")
    >>> record = run(load_config("strict", *small))
    >>> record.privacy.level
    'proved'
    >>> import numpy as np
    >>> dataset = Dataset.from_arrays(np.random.default_rng(0).normal(size=(200, 8)), np.arange(200) % 2)
    >>> config = load_config("paper", "model.dim=8", "run.rounds=1")
    >>> run(config, dataset=dataset).data.class_names
    ('0', '1')
    """
    if out is None:
        options = options or RunOptions()
        needs_directory = {
            "attacks": attacks is not None,
            "resume": resume,
            "options.observers": bool(options.observers),
            "release.noise=system": config.release.noise == privacy.NoiseOrigin.SYSTEM,
        }
        for name in [name for name, is_given in needs_directory.items() if is_given]:
            raise InvalidInput(f"{name} needs a directory for its files, got none; give out")
        begin = time.perf_counter()
        federation = build(config, options.progress, dataset=dataset)
        state = simulate(federation, None, Callbacks(on_round_end=options.on_round_end, stop=options.stop))
        if state.rounds_done < config.run.rounds:
            raise InvalidInput(f"the run was stopped after round {state.rounds_done}; give out to keep what was done")
        ledgers = [client.ledger for client in federation.clients]
        seconds = time.perf_counter() - begin
        return finished_record(federation.config, state.round_records, ledgers, seconds, federation.description)
    result = run_into(config, Path(out), resume=resume, attacks=attacks, options=options, dataset=dataset)
    if result.record is None:
        raise InvalidInput(f"the run was stopped after round {result.rounds_done}; go on with resume=True")
    return result.record


def run_into(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    attacks: AttackConfig | None = None,
    attack_callbacks: AttackCallbacks | None = None,
    options: RunOptions | None = None,
    dataset: Dataset | None = None,
) -> RunResult:
    """Run a config into a directory and write its report; a run that was stopped has no record yet."""
    options = options or RunOptions()
    if attacks is not None:
        factory = AttackFactory(attacks, attack_callbacks or AttackCallbacks())
        options = dataclasses.replace(options, observers=(*options.observers, factory))
    result = run_federation(config, out, resume=resume, options=options, dataset=dataset)
    if result.record is not None:
        write_attack_figures(result.record.attacks or {}, out)
        write_run_report(result.record, out)
    return result


def compare(
    methods: Mapping[str, RunConfig] | str,
    out: Path | str,
    *,
    seeds: Sequence[int] = (0,),
    baseline: str | None = None,
    jobs: int = 1,
    resume: bool = False,
) -> ComparisonSummary:
    """Run several methods over several seeds and compare them, with intervals and paired differences.

    Args:
        methods: configs by name, or the name or TOML file of an experiment such as `quickstart`.
        out: the directory of all runs, tables and the report.
        seeds: one run of each method for each; an experiment's own where it is named.
        baseline: the method that the others are compared with; the experiment's own, or `local`, if None.
        jobs: runs at the same time.
        resume: keep what is finished in `out`.

    Returns:
        The summary that is also written to `out/summary.json`.

    Raises:
        InvalidInput: bad settings or data, or an `out` that holds a comparison already.

    Guarantee: with seeded noise each run equals that of `run` with the same config, whatever `jobs` is.

    >>> small = ("benchmark.kind=synthetic", "benchmark.samples=30", "model.dim=8", "run.rounds=1")
    >>> import tempfile
    >>> methods = {name: load_config("paper", *small, f"mechanism.kind={name}") for name in ("igpp", "vpp")}
    >>> with tempfile.TemporaryDirectory() as out:
    ...     summary = compare(methods, out, seeds=[0, 1], baseline="igpp")
    >>> list(summary.settings[""].methods)
    ['igpp', 'vpp']
    """
    if isinstance(methods, str):
        experiment = load_experiment(methods)
    else:
        if not methods or not seeds:
            raise InvalidInput(f"a comparison needs at least one method and one seed, got {list(methods)}, {seeds}")
        check_names("methods", methods)
        experiment = Experiment(
            name="comparison",
            title="Comparison",
            method_configs=tuple(MethodConfig(scenario="", method=name, config=methods[name]) for name in methods),
            seeds=load.check_seeds(list(seeds)),
            baseline="local" if "local" in methods else None,
        )
    if baseline is not None:
        check_known("baseline", [baseline], {each.method for each in experiment.method_configs})
        experiment = dataclasses.replace(experiment, baseline=baseline)
    summary = run_experiment(experiment, Path(out), jobs=jobs, resume=resume)
    if summary is None:
        raise InvalidInput("the comparison was stopped; go on with resume=True")
    return summary


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    jobs: int = 1,
    resume: bool = False,
    attacks: AttackConfig | None = None,
    keep_uploads: bool = True,
    stop: Callable[[], bool] = never_stop,
    progress: ProgressCallback = no_progress,
    on_start: Callable[[], None] | None = None,
    on_result: Callable[[JobResult], None] | None = None,
) -> ComparisonSummary | None:
    """All runs of an experiment and their summary; None if it was stopped before the end.

    Args:
        experiment: methods, scenarios and seeds.
        out: the directory of all runs.
        jobs: runs at the same time.
        resume: keep what is finished in `out`.
        attacks: attacks on the uploads of every run.
        keep_uploads: whether each run saves what the server received.
        stop: asked between runs.
        progress: called while the frozen features are computed, once for all runs.
        on_start: called before the first run.
        on_result: called with each finished run.

    Returns:
        The summary that is also written to `out/summary.json`.

    Raises:
        InvalidInput: `out` holds a comparison already and `resume` is False.

    Guarantee: as `compare`.

    >>> import tempfile
    >>> experiment = load_experiment("paper", ExperimentOptions(
    ...     settings=("benchmark.kind=synthetic", "model.dim=8", "run.rounds=1"), methods="local,igpp"))
    >>> with tempfile.TemporaryDirectory() as out:
    ...     summary = run_experiment(experiment, Path(out))
    >>> summary.baseline
    'local'
    """
    if not resume and (out / "summary.json").exists():
        raise InvalidInput(f"{out} already holds a comparison; add --resume (resume=True), or choose another directory")
    observers = () if attacks is None else (AttackFactory(dataclasses.replace(attacks, workers=1)),)
    todo = make_jobs(experiment, out, observers=observers, keep_uploads=keep_uploads)
    # The first run's data are loaded here, so that parallel runs find their frozen features in the cache.
    load_clients(todo[0].config, rng.Streams(todo[0].config.run.seed), progress)
    content = {**load.experiment_to_data(experiment), "attacks": None if attacks is None else attacks.to_data()}
    content["keep_uploads"] = keep_uploads
    write_experiment_file(out, content)
    if on_start is not None:
        on_start()
    finished = []
    for result in sweep(todo, workers=min(jobs, len(todo)), resume=resume, stop=stop):
        if result.record is not None:
            finished.append((result.job.scenario, result.job.method, result.record))
        if on_result is not None:
            on_result(result)
    return write_comparison_report(experiment, finished, out) if len(finished) == len(todo) else None


@dataclasses.dataclass(frozen=True, slots=True)
class StoredRun:
    """What was started in a directory, as far as its results depend on it."""

    experiment: Experiment
    attacks: AttackConfig | None
    keep_uploads: bool


def stored_run(out: Path) -> StoredRun:
    """The run or comparison of a directory, with its attacks, to be resumed; raises InvalidInput if there is none."""
    experiment = load.stored_experiment(out)
    if (out / load.EXPERIMENT_FILE).exists():
        content = json.loads((out / load.EXPERIMENT_FILE).read_bytes())
        attacks = content.get("attacks")
        kept = bool(content.get("keep_uploads", True))
        return StoredRun(experiment, attacks and AttackConfig.from_data(attacks), kept)
    config = experiment.method_configs[0].with_seed(experiment.seeds[0])
    saved = RunDir(out).checkpoint_to_resume(config, resume=True) or {}
    attacks = saved.get("attacks", {}).get("order")
    kept = not saved or bool(UploadStore(out).rounds()) or not rules.uploads_prototypes(config)
    return StoredRun(experiment, attacks and AttackConfig.from_data(attacks), kept)


def write_experiment_file(out: Path, content: Mapping[str, object]) -> None:
    """Write what a comparison consists of beside its runs, so that its directory is enough to resume it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise io.write_error(out, error) from error
    io.write_atomically(out / load.EXPERIMENT_FILE, io.json_bytes(content))


def attack(
    run_dir: Path | str,
    config: AttackConfig | None = None,
    *,
    progress: ProgressCallback = no_progress,
    callbacks: AttackCallbacks | None = None,
) -> AttackReport:
    """Attack the uploads of a finished run.

    Args:
        run_dir: the directory of the run.
        config: which attacks, in which rounds; membership in every round if not given.
        progress: called while data are loaded.
        callbacks: where the attacks report.

    Returns:
        The content of `attacks.json`, which is written beside the record: each metric with the value that
        chance would give.

    Raises:
        InvalidInput: no finished run, or one that cannot be repeated.

    Guarantee: the run's record, uploads and ledgers stay as they are; its report is written again.

    >>> small = ("benchmark.kind=synthetic", "benchmark.samples=30", "model.dim=8", "run.rounds=1")
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as out:
    ...     record = run(load_config("paper", *small), out)
    ...     content = attack(out)
    >>> list(content.attacks)
    ['mia']
    """
    directory = RunDir(Path(run_dir))
    plan = directory.path / "plan.toml"
    if not plan.exists() or not directory.record_path.exists():
        raise InvalidInput(f"{directory.path} holds no finished run; give the folder of one, such as runs/paper")
    run_config = load_experiment(str(plan)).method_configs[0].config
    record = directory.read_finished(run_config)
    config, callbacks = config or AttackConfig(kinds=("mia",), likelihood_ratio=True), callbacks or AttackCallbacks()
    results = attack_finished_run(run_config, directory.path, config, progress, callbacks)
    content = AttackReport(identity=run_config.config_hash, attacks=results)
    io.write_atomically(directory.path / "attacks.json", io.json_bytes(content), mode=0o600)
    write_attack_figures(results, directory.path)
    write_run_report(dataclasses.replace(record, attacks={**(record.attacks or {}), **results}), directory.path)
    return content


def audit(
    target: audits.AuditOptions | Path | str, config: audits.AuditConfig | None = None, *, settings: Sequence[str] = ()
) -> audits.AuditResult:
    """Certify a lower bound on the ε that a mechanism, or a finished run, really spends.

    Args:
        target: a mechanism with its budget, or the directory of a finished run.
        config: trials, confidence, and whether the server sends false broadcasts.
        settings: `section.key=value` on top of a run's own.

    Returns:
        The certified bound beside the claim, and whether the claim is refuted.

    Raises:
        InvalidInput: nothing to audit, or a run whose ledger does not fit its config.

    Guarantee:
        With `confidence`, the true ε is at least `certified_epsilon`, whatever the mechanism does.

    >>> options = audits.AuditOptions(mechanism="igpp", rounds=1)
    >>> result = audit(options, audits.AuditConfig(trials=60))
    >>> result.claim.epsilon <= 1.0
    True
    """
    if isinstance(target, audits.AuditOptions):
        request = audits.request_from_options(dataclasses.replace(target, settings=(*target.settings, *settings)))
    else:
        request = audits.request_from_run(Path(target), settings)
    return audits.audit(request.target, request.claim, config)
