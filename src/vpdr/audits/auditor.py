"""The audit: choose a pair of neighbours, fix a test on some runs, and certify it on others."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vpdr.audits import statistics
from vpdr.audits.target import SEARCHED_PAIR, AuditTarget, DistinguishingGame, NoiseFactory, pairs_for, random_pairs
from vpdr.config import RunConfig, load, rules
from vpdr.config.config import TOP_LEVEL_KEYS
from vpdr.mechanisms import SystemNoise
from vpdr.privacy import ACCOUNTANTS, Adjacency, EncoderKind, Event, GuaranteeLevel, Ledger, LedgerFile, accountants
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import InvalidInput, at_least, deep_merge, positive

MIN_TRIALS, MAX_TRIALS = 40, 2500  # runs of each world, if the time decides
_PILOT_RUNS, _PILOT_SECONDS = 4, 0.2  # runs of each world for each pair; one of each where runs are slow
_RELATIVE_MARGIN, _ABSOLUTE_MARGIN = 0.25, 0.05  # by which another attacker must be better
_DELTAS = tuple(10 ** (-7 + 0.1 * step) for step in range(70))  # grid of the claimed curve
_TIGHTEST = "joint"  # the accountant with the smallest ε for given events
_CAVEATS = {
    GuaranteeLevel.PROVED: "the claim is meant to hold end to end",
    GuaranteeLevel.CONDITIONAL: "the claim takes the encoder as fixed; the audit does not",
    GuaranteeLevel.AS_PUBLISHED: "the claim rests on a published sensitivity that is not a bound",
    GuaranteeLevel.NONE: "nothing is claimed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """An (ε, δ) with the events behind it, as a client's ledger states them.

    The events state more than one pair (ε, δ): each of them bounds the whole trade-off between power and
    false positive rate, and all of that can be tested.
    """

    epsilon: float  # infinite without privacy
    delta: float
    level: GuaranteeLevel
    adjacency: Adjacency
    releases: int
    events: tuple[Event, ...]  # of all releases

    @classmethod
    def from_ledger(cls, ledger: Ledger, delta: float) -> "Claim":
        """The claim of a ledger; without a budget, δ is the argument."""
        return cls(
            epsilon=ledger.epsilon_spent if ledger.entries else 0.0,
            delta=ledger.budget.delta if ledger.budget else delta,
            level=ledger.level,
            adjacency=ledger.adjacency,
            releases=len(ledger.releases),
            events=ledger.events,
        )

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.epsilon)

    def curve(self) -> tuple[tuple[float, float], ...]:
        """The finite pairs (ε, δ) that the claim states, its own first."""
        stated = ((self.epsilon, self.delta), *_curve_from_events(self.events))
        return tuple(pair for pair in stated if math.isfinite(pair[0]))


@lru_cache(maxsize=16)
def _curve_from_events(events: tuple[Event, ...]) -> tuple[tuple[float, float], ...]:
    accountant = ACCOUNTANTS[_TIGHTEST]
    return tuple((accountant.epsilon(events, delta), delta) for delta in _DELTAS) if events else ()


def violated_point(
    curve: tuple[tuple[float, float], ...], point: statistics.OperatingPoint
) -> tuple[float, float] | None:
    """The first stated (ε, δ) that the point rules out, or None."""
    return next(((epsilon, delta) for epsilon, delta in curve if point.epsilon(delta) > epsilon), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditResult:
    """The claimed ε against the certified ε.

    Guarantee: with probability at least `confidence` both points are true, and then `certified_epsilon` is a
    lower bound on the ε of the audited releases at the claim's δ, whatever their distribution is. It says
    nothing about pairs, attackers or rounds that were not tried: not refuted is not proved.
    """

    claim: Claim
    points: tuple[statistics.OperatingPoint, ...]
    confidence: float
    trials: int  # runs of each world
    certifying_trials: int  # runs of each world that certify; the others fit attackers and select tests
    pair: str
    pair_description: str
    attacker: str
    training_replayed: bool
    depends_on_server: bool  # whether a release depends on the broadcasts
    seconds: float

    @property
    def certified_epsilon(self) -> float:
        """The largest ε at the claim's δ that the runs rule out."""
        return max(point.epsilon(self.claim.delta) for point in self.points)

    @property
    def mu(self) -> float:
        """The largest μ that the runs rule out, if the trade-off is Gaussian."""
        return max(point.mu for point in self.points)

    @property
    def epsilon_if_gaussian(self) -> float:
        """ε of `mu` at the claim's δ; a bound only if the trade-off is Gaussian."""
        return accountants.epsilon_from_mu(self.mu, self.claim.delta) if math.isfinite(self.mu) else math.inf

    @property
    def violated_claim(self) -> tuple[float, float] | None:
        """A stated (ε, δ) that is false, or None."""
        curve = self.claim.curve()
        return next((pair for point in self.points if (pair := violated_point(curve, point))), None)

    @property
    def refuted(self) -> bool:
        return self.violated_claim is not None

    @property
    def verdict(self) -> str:
        if not self.claim.is_finite:
            return "not refuted: no finite epsilon is claimed"
        epsilon, certified = self.claim.epsilon, self.certified_epsilon
        if self.violated_claim is None:
            return f"not refuted: claimed epsilon {epsilon:.4g}, certified {certified:.4g}"
        claimed = f'refuted: claimed "{self.claim.level}" epsilon {epsilon:.4g}'
        if certified > epsilon:
            return f"{claimed}, certified at least {certified:.4g} at delta {self.claim.delta:g}"
        epsilon, delta = self.violated_claim
        return (
            f"{claimed}; its events also state ({epsilon:.4g}, {delta:.3g}), and that is false: "
            f"on a Gaussian curve epsilon is at least {self.epsilon_if_gaussian:.4g}"
        )

    @property
    def caveat(self) -> str:
        return _CAVEATS[self.claim.level]

    def to_data(self) -> dict[str, Any]:
        return {
            "claimed": {
                "epsilon": self.claim.epsilon,
                "delta": self.claim.delta,
                "level": str(self.claim.level),
                "adjacency": str(self.claim.adjacency),
                "releases": self.claim.releases,
            },
            "certified_epsilon": self.certified_epsilon,
            "gaussian_mu": self.mu,
            "gaussian_epsilon": self.epsilon_if_gaussian,
            "confidence": self.confidence,
            "points": [{"power": point.power, "false_alarms": point.fpr} for point in self.points],
            "refuted": self.refuted,
            "verdict": self.verdict,
            "broken": self.violated_claim,
            "trials": self.trials,
            "judged": self.certifying_trials,
            "pair": self.pair,
            "attacker": self.attacker,
            "replayed_training": self.training_replayed,
            "server_heard": self.depends_on_server,
            "seconds": self.seconds,
        }


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
            raise InvalidInput(f"an audit needs at least {MIN_TRIALS // 2} trials, got {self.trials}; raise trials")
        if not 0.5 <= self.confidence < 1:
            raise InvalidInput(f"confidence must lie in [0.5, 1), got {self.confidence:g}")


def audit(target: AuditTarget, claim: Claim | None = None, config: AuditConfig | None = None) -> AuditResult:
    """Certify a lower bound on the ε of a client's releases, with the guarantee of `AuditResult`.

    Runs the client on both datasets of a pair of neighbours. The first tenth of the runs fits the attackers,
    the next two tenths select one attacker and threshold for ε and one for μ, and the rest certify them. The
    default claim is what the client's own ledger states after all releases.

    >>> from vpdr.audits.target import make_noise_factory
    >>> target = request_from_options(AuditOptions(mechanism="igpp", rounds=1)).target
    >>> audit(target, config=AuditConfig(trials=20, noise=make_noise_factory(0))).refuted
    False
    """
    config, begin = config or AuditConfig(), time.perf_counter()
    if config.lying_server and target.releases < 2:
        raise InvalidInput(
            f"a hostile server has no effect before the second release, but {target.releases} is audited; "
            "it needs at least 2 rounds, and an honest server needs no more than 1"
        )
    torch.set_num_threads(target.run_config.run.threads)  # more threads are slower here, and round differently
    if claim is None:
        ledger = target.ledger_after_all_releases(config.noise())
        claim = Claim.from_ledger(ledger, target.run_config.budget.delta)
    game, seconds_per_run = _find_strongest_game(target, config)
    trials = config.trials or max(MIN_TRIALS, min(MAX_TRIALS, int(config.seconds / (2 * seconds_per_run))))
    runs = []  # both worlds in turn, so that every even part of the list is balanced
    for number in range(trials):
        runs += _run_both_worlds(game, config)
        config.progress("runs of both worlds", number + 1, trials)
    fit_end, selection_end = 2 * math.ceil(0.1 * trials), 2 * math.ceil(0.3 * trials)
    alpha = (1 - config.confidence) / 4  # two tests with two rates each
    tests = _select_tests(runs[:fit_end], runs[fit_end:selection_end], claim.delta, alpha)
    points = []
    for rated in tests:
        first, second = statistics.score_by_world(rated.attacker, runs[selection_end:])
        points.append(statistics.operating_point(rated.test, first, second, alpha))
    return AuditResult(
        claim=claim,
        points=tuple(points),
        confidence=config.confidence,
        trials=trials,
        certifying_trials=trials - selection_end // 2,
        pair=game.pair.name,
        pair_description=game.pair.description,
        attacker=" and ".join(dict.fromkeys(rated.name for rated in tests)),
        training_replayed=game.static_clients is None,
        depends_on_server=game.depends_on_server,
        seconds=time.perf_counter() - begin,
    )


def _find_strongest_game(target: AuditTarget, config: AuditConfig) -> tuple[DistinguishingGame, float]:
    """The pair that a few runs distinguish best, and the seconds of one run."""
    planted = pairs_for(target)
    pairs = [pair for pair in planted if pair.name == config.pair]
    if not pairs:
        if config.pair not in ("", SEARCHED_PAIR):
            names = ", ".join([*(pair.name for pair in planted), SEARCHED_PAIR])
            raise InvalidInput(f"unknown pair {config.pair!r} for {target.adjacency}; choose one of {names}")
        # summarisers that adapt to the data have counter-examples that nobody plants by hand
        tried = [(statistics.replacement_effect(target, pair, config.noise), pair) for pair in random_pairs(target)]
        searched = max(tried, key=lambda rated: rated[0])[1]
        pairs = [searched] if config.pair else [*planted, searched]
    rated_games = []
    for number, pair in enumerate(pairs):
        config.progress("pairs", number, len(pairs))
        game = DistinguishingGame.prepare(target, pair, hostile=config.lying_server)
        begin = time.perf_counter()
        runs = _run_both_worlds(game, config)
        while len(runs) < 2 * _PILOT_RUNS and time.perf_counter() - begin < _PILOT_SECONDS:
            runs += _run_both_worlds(game, config)
        seconds_per_run = (time.perf_counter() - begin) / len(runs)
        for _ in range(2 * _PILOT_RUNS - len(runs)):
            config.noise()  # so that seeded noise of later runs does not depend on the speed of the machine
        rated_games.append((statistics.jeffreys_divergence(runs), game, seconds_per_run))
    config.progress("pairs", len(pairs), len(pairs))
    _, game, seconds_per_run = max(rated_games, key=lambda rated: rated[0])
    return game, seconds_per_run


def _run_both_worlds(game: DistinguishingGame, config: AuditConfig) -> list[statistics.TrialSummary]:
    return [statistics.summarise_trial(game.run(world, config.noise), game.target.clip_norm) for world in (0, 1)]


class RatedTest(NamedTuple):
    """An attacker with a threshold, and what it would certify."""

    value: float
    name: str
    attacker: statistics.Attacker
    test: statistics.ThresholdTest


def _select_tests(
    fit_runs: Sequence[statistics.TrialSummary],
    selection_runs: Sequence[statistics.TrialSummary],
    delta: float,
    alpha: float,
) -> list[RatedTest]:
    """The attacker and threshold with the largest ε at δ, and those with the largest μ.

    A simpler attacker is kept unless the other one is clearly better: few runs favour one by chance.
    """
    best: list[RatedTest] = []
    for name, attacker in statistics.fit_attackers(fit_runs).items():
        first, second = statistics.score_by_world(attacker, selection_runs)
        tests = statistics.best_tests(first, second, delta, alpha)
        points = [statistics.operating_point(test, first, second, alpha) for test in tests]
        values = (points[0].log_ratio(delta), points[1].signed_mu)
        for index, (value, test) in enumerate(zip(values, tests, strict=True)):
            rated = RatedTest(value, name, attacker, test)
            if len(best) < len(tests):
                best.append(rated)
            elif value > best[index].value + _RELATIVE_MARGIN * abs(best[index].value) + _ABSOLUTE_MARGIN:
                best[index] = rated
    return best


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
    """A client that releases as the options say; the default summariser is the first that is accepted."""
    public_counts = options.adjacency == Adjacency.REPLACE_SAME_LABEL
    summarisers = (options.summariser,) if options.summariser else _DEFAULT_SUMMARISERS[public_counts]
    from_options = {
        "mechanism": {"kind": options.mechanism},
        "budget": {"epsilon": options.epsilon, "delta": options.delta, "adjacency": options.adjacency},
        "run": {"rounds": options.rounds},
        "release": {"encoder": rules.encoder_setting(EncoderKind(options.encoder))},
        "model": _SMALL_MODEL,
    }
    data = deep_merge(load.read_builtin("presets", "paper"), _small_settings(options.encoder))
    data, overrides = deep_merge(data, from_options), load.parse_overrides(options.settings)
    errors: list[InvalidInput] = []
    for summariser in summarisers:
        try:
            with_summariser = deep_merge(data, {"release": {"summariser": summariser}})
            config = RunConfig.from_dict(deep_merge(with_summariser, overrides), below=with_summariser)
            return AuditRequest(AuditTarget.from_config(config))
        except InvalidInput as error:
            errors.append(error)
    raise errors[0]


def _small_settings(encoder: str) -> dict[str, Any]:
    sizes = _DATA_SIZES_FOR_TRAINING if EncoderKind(encoder).is_trained_on_private_data else _DATA_SIZES
    return deep_merge(_BASE_SETTINGS, {"benchmark": sizes})


def request_from_run(run_dir: Path, overrides: Sequence[str] = ()) -> AuditRequest:
    """The client of a finished run on planted data, with the claim of the ledger that spent the most.

    Raises InvalidInput if the directory has no run or no release, or a replay would be charged differently.
    """
    source = run_dir / "plan.toml"
    if not source.is_file():
        raise InvalidInput(f"{run_dir} holds no run: expected a plan.toml; give the directory of a finished run")
    ledgers = [LedgerFile(path).read() for path in sorted((run_dir / "ledgers").glob("*.json"))]
    if not any(ledger.releases for ledger in ledgers):
        raise InvalidInput(f"the ledgers in {run_dir} hold no release: there is nothing to audit")
    worst = max(ledgers, key=lambda each: (each.epsilon_spent if each.entries else 0.0, len(each.entries)))
    plan = load.read_source(str(source))
    load.load_plugins(plan.get("plugins", {}), run_dir)
    data = {name: each for name, each in plan.items() if isinstance(each, Mapping) and name not in TOP_LEVEL_KEYS}
    small_settings = _small_settings(str(worst.releases[-1].receipt.terms.encoder))
    dim = min(int(data["model"]["dim"]), MAX_DIM)
    data = deep_merge(deep_merge(data, small_settings), {"model": {"dim": dim}})
    config = RunConfig.from_dict(deep_merge(data, load.parse_overrides(overrides)), below=data)
    target = AuditTarget.from_config(config, len(worst.releases))
    charged = [event for entry in worst.releases for event in entry.receipt.events]
    planned = target.planned_events()
    if len(planned) != len(charged) or not all(map(_events_match, planned, charged)):
        raise InvalidInput(
            f"{run_dir} cannot be audited: a replay of its config would not be charged what the ledger of "
            f"{worst.client} was (a crash makes clients start again; --set changes the config); "
            "audit another run"
        )
    return AuditRequest(target, Claim.from_ledger(worst, config.budget.delta))


def _events_match(first: Event, second: Event) -> bool:
    numbers = zip(astuple(first), astuple(second), strict=False)
    return type(first) is type(second) and all(math.isclose(a, b, rel_tol=_REL_TOLERANCE) for a, b in numbers)
