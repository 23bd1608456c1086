"""The audit: choose a pair of neighbours, fix a test on some runs, and certify it on others.

Beside the planted pairs, `most_sensitive_replacement` searches random pairs: summarisers that adapt to the
data have counter-examples that nobody plants by hand.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.audits.attackers import (
    Attacker,
    TrialSummary,
    fit_attackers,
    jeffreys_divergence,
    score_by_world,
    summarise_trial,
    transcript_shape,
)
from vpdr.audits.statistics import AuditResult, Claim, ThresholdTest, best_tests, operating_point
from vpdr.audits.target import (
    AuditTarget,
    DistinguishingGame,
    NeighbourPair,
    NoiseFactory,
    Transcript,
    Trial,
    ZeroNoise,
    background_samples,
    hostile_server,
    pairs_for,
    run_client,
)
from vpdr.client import Samples
from vpdr.config import RunConfig
from vpdr.config.load import parse_overrides, read_builtin, read_source
from vpdr.config.rules import encoder_setting
from vpdr.errors import InvalidInput
from vpdr.mechanisms import SystemNoise
from vpdr.privacy import Adjacency, EncoderKind, Event, Ledger, LedgerFile
from vpdr.types import MechanismState, ProgressCallback, no_progress
from vpdr.validation import at_least, deep_merge, positive

MIN_TRIALS, MAX_TRIALS = 40, 2500  # runs of each world, if the time decides
SEARCHED_PAIR, SEARCH_TRIES = "restless", 24
_PILOT_RUNS, _PILOT_SECONDS = 4, 0.2  # runs of each world for each pair; one of each where runs are slow
_RELATIVE_MARGIN, _ABSOLUTE_MARGIN = 0.25, 0.05  # by which another attacker must be better
_MIN_VARIANCE = 1e-300


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditConfig:
    """The effort of an audit.

    Args:
        trials: runs of each world; 0 means as many as fit into `seconds`.
        seconds: time for the runs, if `trials` is 0.
        confidence: probability that the certified bounds are true.
        noise: creates the noise source of each run.
        lying_server: whether the server replaces uploads to learn more about the canary.
        pair: the name of one pair of neighbours; the easiest to distinguish if empty.
        progress: receives the progress.

    Raises:
        InvalidInput: a value is out of range.

    >>> AuditConfig(trials=200).confidence
    0.95
    """

    trials: int = 0
    seconds: float = 25.0
    confidence: float = 0.95
    noise: NoiseFactory = SystemNoise
    lying_server: bool = False
    pair: str = ""
    progress: ProgressCallback = no_progress

    def __post_init__(self) -> None:
        at_least(0, trials=self.trials)
        positive(seconds=self.seconds)
        if 0 < self.trials < MIN_TRIALS // 2:
            raise InvalidInput(f"an audit needs at least {MIN_TRIALS // 2} trials, got {self.trials}; raise --trials")
        if not 0.5 <= self.confidence < 1:
            raise InvalidInput(f"confidence must lie in [0.5, 1), got {self.confidence:g}")


def audit(target: AuditTarget, claim: Claim | None = None, config: AuditConfig | None = None) -> AuditResult:
    """Certify a lower bound on the ε of a client's releases.

    Runs the client on both datasets of a pair of neighbours. The first tenth of the runs fits the attackers,
    the next two tenths select one attacker and threshold for ε and one for μ, and the rest certify them.

    Args:
        target: the audited client.
        claim: what to refute; by default what the client's own ledger states after all releases.
        config: the effort.

    Returns:
        The result. Its guarantee is that of `AuditResult`.

    Raises:
        InvalidInput: the pair is unknown, or a hostile server has no release to influence.

    >>> from vpdr.audits.target import make_noise_factory
    >>> from vpdr.audits.auditor import AuditOptions, request_from_options
    >>> target = request_from_options(AuditOptions(mechanism="igpp", rounds=1)).target
    >>> audit(target, config=AuditConfig(trials=20, noise=make_noise_factory(0))).refuted
    False
    """
    config, begin = config or AuditConfig(), time.perf_counter()
    if config.lying_server and target.releases < 2:
        raise InvalidInput(
            f"a hostile server has no effect before the second release, but {target.releases} is audited; "
            "it needs at least 2 --rounds, and an honest server needs no more than 1"
        )
    torch.set_num_threads(target.run_config.run.threads)  # more threads are slower here, and round differently
    claim = claim or compute_claim(target, config)
    game, seconds_per_run = _find_strongest_game(target, config)
    trials = config.trials or _affordable_trials(config.seconds, seconds_per_run)
    runs = _run_trials(game, trials, config)
    fit_end, selection_end = 2 * math.ceil(0.1 * trials), 2 * math.ceil(0.3 * trials)
    alpha = (1 - config.confidence) / 4  # two tests with two rates each
    tests = _select_tests(runs[:fit_end], runs[fit_end:selection_end], claim.delta, alpha)
    certifying_runs = runs[selection_end:]
    return AuditResult(
        claim=claim,
        points=tuple(
            operating_point(rated.test, *score_by_world(rated.attacker, certifying_runs), alpha) for rated in tests
        ),
        confidence=config.confidence,
        trials=trials,
        certifying_trials=trials - selection_end // 2,
        pair=game.pair.name,
        pair_description=game.pair.description,
        attacker=" and ".join(dict.fromkeys(rated.name for rated in tests)),
        training_replayed=game.replays_training,
        depends_on_server=game.depends_on_server,
        seconds=time.perf_counter() - begin,
    )


def compute_claim(target: AuditTarget, config: AuditConfig) -> Claim:
    """What a client's own ledger states after all its releases."""
    client = target.make_client_with_real_ledger(pairs_for(target)[0].first, config.noise())
    run_client(target, client, [])
    return Claim.from_ledger(client.ledger, target.run_config.budget.delta)


def _find_strongest_game(target: AuditTarget, config: AuditConfig) -> tuple[DistinguishingGame, float]:
    """The pair that a few runs distinguish best, and the seconds of one run."""
    pairs = _candidate_pairs(target, config)
    best: tuple[float, DistinguishingGame, float] | None = None
    for number, pair in enumerate(pairs):
        config.progress("pairs", number, len(pairs))
        server = hostile_server(target, pair.canary) if config.lying_server else target.server
        game = DistinguishingGame.prepare(dataclasses.replace(target, server=server), pair)
        begin = time.perf_counter()
        runs = [_run_once(game, world, config) for world in (0, 1)]
        while len(runs) < 2 * _PILOT_RUNS and time.perf_counter() - begin < _PILOT_SECONDS:
            runs += [_run_once(game, world, config) for world in (0, 1)]
        seconds_per_run = (time.perf_counter() - begin) / len(runs)
        for _ in range(2 * _PILOT_RUNS - len(runs)):
            config.noise()  # so that seeded noise of later runs does not depend on the speed of the machine
        divergence = jeffreys_divergence(runs)
        if best is None or divergence > best[0]:
            best = divergence, game, seconds_per_run
    config.progress("pairs", len(pairs), len(pairs))
    if best is None:
        raise InvalidInput(f"no pair of neighbours is known for {target.adjacency}")
    return best[1], best[2]


def _candidate_pairs(target: AuditTarget, config: AuditConfig) -> list[NeighbourPair]:
    planted = pairs_for(target)
    named = [pair for pair in planted if pair.name == config.pair]
    if named:
        return named
    if config.pair not in ("", SEARCHED_PAIR):
        names = ", ".join([*(pair.name for pair in planted), SEARCHED_PAIR])
        raise InvalidInput(f"unknown pair {config.pair!r} for {target.adjacency}; choose one of {names}")
    searched = most_sensitive_replacement(target, config.noise)
    return [searched] if config.pair else [*planted, searched]


def _run_once(game: DistinguishingGame, world: int, config: AuditConfig) -> TrialSummary:
    return summarise_trial(game.run(world, config.noise), game.target.clip_norm)


def _affordable_trials(seconds: float, seconds_per_run: float) -> int:
    return max(MIN_TRIALS, min(MAX_TRIALS, int(seconds / (2 * seconds_per_run))))


def _run_trials(game: DistinguishingGame, trials: int, config: AuditConfig) -> list[TrialSummary]:
    """Both worlds in turn, so that every even part of the list is balanced."""
    runs = []
    for number in range(trials):
        runs += [_run_once(game, world, config) for world in (0, 1)]
        config.progress("runs of both worlds", number + 1, trials)
    return runs


class RatedTest(NamedTuple):
    """An attacker with a threshold, and what it would certify."""

    value: float
    name: str
    attacker: Attacker
    test: ThresholdTest


def _select_tests(
    fit_runs: Sequence[TrialSummary], selection_runs: Sequence[TrialSummary], delta: float, alpha: float
) -> list[RatedTest]:
    """The attacker and threshold with the largest ε at δ, and those with the largest μ."""
    best: list[RatedTest] = []
    for name, attacker in fit_attackers(fit_runs).items():
        first, second = score_by_world(attacker, selection_runs)
        tests = best_tests(first, second, delta, alpha)
        points = [operating_point(test, first, second, alpha) for test in tests]
        rated = [
            RatedTest(points[0].log_ratio(delta), name, attacker, tests[0]),
            RatedTest(points[1].signed_mu, name, attacker, tests[1]),
        ]
        best = [_better_test(old, new) for old, new in zip(best or rated, rated, strict=True)]
    return best


def _better_test(old: RatedTest, new: RatedTest) -> RatedTest:
    """The simpler attacker, unless the other one is clearly better: few runs favour one by chance."""
    margin = _RELATIVE_MARGIN * abs(old.value) + _ABSOLUTE_MARGIN
    return new if new.value > old.value + margin else old


def most_sensitive_replacement(target: AuditTarget, noise: NoiseFactory) -> NeighbourPair:
    """Of many random replacements within a class, the one that changes the first upload most.

    A replacement within a class is a neighbour under both replacing adjacencies; under add-remove the
    replaced sample is left out instead.
    """
    pairs = [_random_pair(target, attempt) for attempt in range(SEARCH_TRIES)]
    return max(pairs, key=lambda pair: replacement_effect(target, pair, noise))


def replacement_effect(target: AuditTarget, pair: NeighbourPair, noise: NoiseFactory) -> float:
    """How far the first upload without noise moves, in squared standard deviations of the noise."""
    before, after = (_first_upload(target, samples, ZeroNoise) for samples in pair.datasets)
    if transcript_shape(before.uploads) != transcript_shape(after.uploads):
        return math.inf
    noisy = Trial(0, _first_upload(target, pair.first, noise), (before, before))
    noise_summary = summarise_trial(noisy, target.clip_norm)
    shift_summary = summarise_trial(Trial(0, after, (before, before)), target.clip_norm)
    if noise_summary.distances is None or shift_summary.distances is None:
        return 0.0
    variances = (noise_summary.distances[0] / noise_summary.row_width).clamp(min=_MIN_VARIANCE)
    return float((shift_summary.distances[0] / variances).sum())


def _first_upload(target: AuditTarget, samples: Samples, noise: NoiseFactory) -> Transcript:
    upload = target.make_client(samples, noise()).release(1)
    return Transcript((upload if upload is not None else target.empty_upload(),))


def _random_pair(target: AuditTarget, attempt: int) -> NeighbourPair:
    """Random samples without class structure, and another draw for one of them."""
    rng = target.streams.generator("restless", round=attempt)
    per_class = max(2, target.run_config.benchmark.samples // target.classes)
    labels = torch.arange(target.classes).repeat_interleave(per_class)
    vectors = _random_vectors(len(labels), target, rng)
    row = int(torch.randint(len(labels), (1,), generator=rng))
    other = vectors.clone()
    other[row] = _random_vectors(1, target, rng)[0]
    rows = torch.arange(len(labels))
    if target.adjacency is Adjacency.ADD_REMOVE:
        rows = rows[rows != row]
    return NeighbourPair(
        name=SEARCHED_PAIR,
        description=f"one ordinary sample against another, the worst of {SEARCH_TRIES} tries",
        first=Samples(vectors, labels),
        second=Samples(other[rows], labels[rows]),
        canary=other[row],
    )


def _random_vectors(count: int, target: AuditTarget, rng: torch.Generator) -> Float[Tensor, "n d"]:
    vectors: Tensor = torch.randn(count, target.dim, generator=rng).mul(target.clip_norm / target.dim**0.5)
    return vectors


# From command-line options or a finished run to an audit target and its claim.


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
