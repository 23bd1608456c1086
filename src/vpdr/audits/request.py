"""From command-line options or a finished run to an audit target and its claim."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpdr.audits.pairs import background_samples
from vpdr.audits.result import Claim
from vpdr.audits.target import AuditTarget, ZeroNoise
from vpdr.config import RunConfig, encoder_setting, parse_overrides, read_builtin, read_source
from vpdr.errors import InvalidInput
from vpdr.privacy import Adjacency, EncoderKind, Event, Ledger, LedgerFile
from vpdr.types import MechanismState
from vpdr.validation import deep_merge

MAX_DIM = 64  # dimension of the audit of a run, unless an override changes it

# The data are planted, so a small model and few classes suffice; the effect of training needs more samples.
_BASE_SETTINGS: dict[str, Any] = {
    "benchmark": {"kind": "synthetic", "clients": 1, "per_domain": 1, "skew": "domain"},
    "participation": {"fraction": 1.0, "dropout": 0.0, "schedule": {}},
    "run": {"name": "audit", "threads": 1},
}
_DATA_SIZES = {"classes": 2, "samples": 80}
_DATA_SIZES_FOR_TRAINING = {"classes": 2, "samples": 768}
_DEFAULT_SUMMARISERS = {True: ("means", "sums"), False: ("sums",)}  # by whether counts are public
_SMALL_MODEL = {"dim": 16, "width": 8, "hidden": 8, "dropout": 0.0}
_REL_TOLERANCE = 1e-9  # a smaller model may round the same cost differently


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditOptions:
    """The options of `vpdr audit` that describe a mechanism.

    Args:
        mechanism: a name in `MECHANISMS`.
        epsilon: the ε that all rounds together claim.
        delta: the δ of the claim.
        rounds: number of releases.
        summariser: a name in `SUMMARISERS`; by default class means, or sums where counts are private.
        encoder: the kind of encoder.
        adjacency: the adjacency relation.
        settings: overrides of the config, as SECTION.KEY=VALUE.

    >>> AuditOptions(mechanism="rapp", adjacency="replace-one").epsilon
    1.0
    """

    mechanism: str = "igpp"
    epsilon: float = 1.0
    delta: float = 1e-5
    rounds: int = 20
    summariser: str | None = None
    encoder: str = EncoderKind.PUBLIC
    adjacency: str = Adjacency.REPLACE_SAME_LABEL
    settings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """A target, and the claim of a finished run."""

    target: AuditTarget
    claim: Claim | None = None


def request_from_options(options: AuditOptions) -> AuditRequest:
    """A client that releases as the options say; the default summariser is the first that is accepted.

    Raises:
        InvalidInput: the options contradict each other, or name something unknown.
    """
    public_counts = options.adjacency == Adjacency.REPLACE_SAME_LABEL
    summarisers = (options.summariser,) if options.summariser else _DEFAULT_SUMMARISERS[public_counts]
    errors: list[InvalidInput] = []
    for summariser in summarisers:
        try:
            return AuditRequest(AuditTarget.from_config(_run_config(options, summariser)))
        except InvalidInput as error:
            errors.append(error)
    raise errors[0]


def _run_config(options: AuditOptions, summariser: str) -> RunConfig:
    from_options = {
        "mechanism": {"kind": options.mechanism},
        "budget": {"epsilon": options.epsilon, "delta": options.delta, "adjacency": options.adjacency},
        "run": {"rounds": options.rounds},
        "release": {"encoder": encoder_setting(EncoderKind(options.encoder)), "summariser": summariser},
        "model": _SMALL_MODEL,
    }
    data = deep_merge(read_builtin("presets", "paper"), _small_settings(options.encoder))
    data = deep_merge(data, from_options)
    return RunConfig.from_dict(deep_merge(data, parse_overrides(options.settings)))


def _small_settings(encoder: str) -> dict[str, Any]:
    sizes = _DATA_SIZES_FOR_TRAINING if EncoderKind(encoder).is_trained_on_private_data else _DATA_SIZES
    return deep_merge(_BASE_SETTINGS, {"benchmark": sizes})


def request_from_run(run_dir: Path, overrides: Sequence[str] = ()) -> AuditRequest:
    """The client of a finished run on planted data, with the claim of the ledger that spent the most.

    Args:
        run_dir: the directory of a finished run.
        overrides: changes of its config, as SECTION.KEY=VALUE.

    Raises:
        InvalidInput: the directory has no run or no release, or a replay would be charged differently.
    """
    source = run_dir / "plan.toml"
    if not source.is_file():
        raise InvalidInput(f"{run_dir} holds no run: expected a plan.toml; give the directory of a finished run")
    ledgers = [LedgerFile(path).read() for path in sorted((run_dir / "ledgers").glob("*.json"))]
    if not any(ledger.releases for ledger in ledgers):
        raise InvalidInput(f"the ledgers in {run_dir} hold no release: there is nothing to audit")
    worst = max(ledgers, key=_spent_and_entry_count)
    encoder = str(worst.releases[-1].receipt.terms.encoder)
    data = read_source(str(source))
    dim = min(int(data["model"]["dim"]), MAX_DIM)
    data = deep_merge(deep_merge(data, _small_settings(encoder)), {"model": {"dim": dim}})
    config = RunConfig.from_dict(deep_merge(data, parse_overrides(overrides)))
    target = AuditTarget.from_config(config, len(worst.releases))
    charged = [event for entry in worst.releases for event in entry.receipt.events]
    if not same_events(planned_events(target), charged):
        raise InvalidInput(
            f"{run_dir} cannot be audited: a replay of its config would not be charged what the ledger of "
            f"{worst.client} was (a crash makes clients start again; --set changes the config); "
            "audit another run"
        )
    return AuditRequest(target, Claim.from_ledger(worst, config.budget.delta))


def _spent_and_entry_count(ledger: Ledger) -> tuple[float, int]:
    spent = ledger.epsilon_spent if ledger.entries else 0.0
    return (spent if math.isfinite(spent) else math.inf), len(ledger.entries)


def planned_events(target: AuditTarget) -> tuple[Event, ...]:
    """The events of all releases in order; they depend on no sample, so planted ones suffice."""
    vectors, labels = background_samples(target)
    state: MechanismState = {}
    events: list[Event] = []
    for round in range(1, target.releases + 1):
        context = target.make_release_context(round, ZeroNoise(), state=state)
        release = target.client.release_config.mechanism.release(vectors, labels, context)
        events += release.receipt.events
        state = release.state
    return tuple(events)


def same_events(first: Sequence[Event], second: Sequence[Event]) -> bool:
    """Whether two clients were charged the same, in the same order."""
    return len(first) == len(second) and all(map(_events_close, first, second))


def _events_close(first: Event, second: Event) -> bool:
    numbers = zip(dataclasses.astuple(first), dataclasses.astuple(second), strict=False)
    return type(first) is type(second) and all(math.isclose(a, b, rel_tol=_REL_TOLERANCE) for a, b in numbers)


def describe_target(target: AuditTarget) -> dict[str, Any]:
    """What is audited, for the output."""
    config, release_config = target.run_config, target.client.release_config
    return {
        "mechanism": config.mechanism.kind,
        "summariser": type(release_config.summariser).__name__,
        "framework": config.framework.kind,
        "encoder": str(release_config.encoder_kind),
        "adjacency": str(target.adjacency),
        "releases": target.releases,
        "dim": target.dim,
        "classes": target.classes,
        "samples": config.benchmark.samples,
        "settings": dataclasses.asdict(config.mechanism),
    }
