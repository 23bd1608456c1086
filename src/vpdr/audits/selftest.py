"""Self-tests of an installation (`vpdr doctor`): the facts that the guarantees rest on, checked in place.

Each check returns a line of text with what it measured, or raises. Checks of mechanisms, summarisers,
frameworks and accountants cover every registered plug-in.
"""

import math
import os
import platform
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import ndtr
from scipy.stats import kstest

from vpdr import privacy
from vpdr.audits import auditor, statistics
from vpdr.audits.target import AuditTarget, StaticClient, ZeroNoise, antipodal_canary, mislabelled_canary, pairs_for
from vpdr.client import Samples
from vpdr.frameworks import FRAMEWORKS
from vpdr.mechanisms import MECHANISMS, Igpp, ReleaseContext, SystemNoise, base
from vpdr.privacy import ledger_file
from vpdr.prototypes import SUMMARISERS, ClassMeans, ClassSums, NoSensitivity, Summariser
from vpdr.rng import EXPONENTIAL, NORMAL, Grid, Streams, attempt, attempt_exactly
from vpdr.types import Float, Prototypes, Tensor
from vpdr.validation import DamagedFile, InvalidInput, VpdrError

REPORTED_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn")
CLASSES, DIM, SAMPLES, CLIP_NORM, NEIGHBOUR_TRIES = 4, 8, 24, 2.0, 60  # of the sensitivities
NOISE_RELEASES = 100  # of each mechanism
NOISE_DRAWS = 4096  # of the system's noise
EXACT_DECISIONS = 256  # of the sampler, repeated with arbitrary precision
BUDGET, ROUNDS = privacy.Budget(1.0, 1e-5), 20  # of ledger and accountants
SMALL_DATA = ("benchmark.samples=16", "model.dim=8")
SMALL_SERVERS = {  # by framework
    "fedtgp": ("framework.fedtgp.epochs=2",),
    "mpft": ("framework.mpft.epochs=2", "framework.mpft.hidden=8"),
}
UPLOAD_DTYPES = {"vectors": torch.float32, "labels": torch.int64, "variances": torch.float32, "on_path": torch.bool}
_MAX_STANDARD_ERRORS = 10.0
_RELATIVE_SLACK = 0.1  # of one pair: noise of several scales is measured as if it had one
_MIN_P_VALUE = 1e-9


class SelfTestFailed(Exception):
    """A self-test that did not measure what it must."""


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """The result of one self-test."""

    name: str
    ok: bool
    message: str


def require(condition: bool, message: str) -> None:
    """Raise `SelfTestFailed` unless the condition is true."""
    if not condition:
        raise SelfTestFailed(message)


def check_versions() -> str:
    """Every required dependency is installed, at least in its minimal version."""
    for requirement in metadata.requires("vpdr") or []:
        if "extra ==" in requirement:
            continue
        name = re.split(r"[\s<>=!~;\[(]", requirement, maxsplit=1)[0]
        bound = re.search(r">=\s*([0-9.]+)", requirement)
        minimum, version = bound.group(1) if bound else "0", metadata.version(name)
        is_new_enough = _version_tuple(version) >= _version_tuple(minimum)
        require(is_new_enough, f"{name} {version} is older than {minimum}; upgrade it")
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in REPORTED_PACKAGES)
    return f"python {platform.python_version()}, vpdr {metadata.version('vpdr')}, {packages}"


def _version_tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def check_sensitivities() -> str:
    """No pair of neighbours moves a summary further than its proved sensitivity, under any adjacency."""
    ratios = []
    for name, kind in SUMMARISERS.items():
        summariser = ClassSums(classes=CLASSES) if kind is ClassSums else kind()
        if summariser.basis is not privacy.guarantee.SensitivityBasis.PROVED:
            continue
        for adjacency in privacy.Adjacency:
            try:
                summariser.sensitivity(adjacency, CLIP_NORM, torch.tensor([1]))
            except NoSensitivity:
                continue
            ratio = max(_sensitivity_ratio(summariser, adjacency, attempt) for attempt in range(NEIGHBOUR_TRIES))
            require(ratio <= 1 + 1e-9, f"{name} move {ratio:.4f} of their sensitivity under {adjacency}")
            require(ratio > 0.9, f"{name} reach only {ratio:.4f} of their bound: the search is too weak")
            ratios.append(f"{name} {adjacency} {ratio:.4f}")
    return "largest share of the stated bound: " + ", ".join(ratios)


def _sensitivity_ratio(summariser: Summariser, adjacency: privacy.Adjacency, attempt: int) -> float:
    """How far a summary moves between two neighbours, in units of its bound."""
    grid = Grid.for_noise(CLIP_NORM, CLIP_NORM)
    before, after = (
        base.RowSums.of(summariser, grid.clip(samples.frozen_features, CLIP_NORM), samples.labels, grid)
        for samples in _neighbour_datasets(adjacency, attempt)
    )
    require(before.labels.equal(after.labels), f"a neighbour under {adjacency} changes which rows there are")
    unit = summariser.sensitivity(adjacency, CLIP_NORM, before.sizes)
    moved_rows = grid.to_real(before.sums - after.sums) / summariser.divisors(before.sizes)[:, None]
    moved = (moved_rows.norm(dim=1) / unit).square().sum()
    if summariser.counts_are_private(adjacency):
        moved = moved + ((before.sizes - after.sizes).double() / (unit / CLIP_NORM)).square().sum()
    return math.sqrt(float(moved))


def _neighbour_datasets(adjacency: privacy.Adjacency, attempt: int) -> tuple[Samples, Samples]:
    """Random samples with one far out; in the second dataset it is moved, relabelled or removed."""
    rng = Streams(attempt).generator("neighbours")
    labels = torch.arange(SAMPLES) % CLASSES
    vectors = torch.empty(SAMPLES, DIM, dtype=torch.float64).uniform_(-1, 1, generator=rng)
    vectors[0] *= 10.0 ** (attempt % 4)
    other_vectors, other_labels = vectors.clone(), labels.clone()
    other_vectors[0] = -vectors[0] if attempt % 2 else vectors[attempt % SAMPLES] * 3
    mask: Tensor = torch.ones(SAMPLES, dtype=torch.bool)
    if adjacency is privacy.Adjacency.REPLACE_ONE:
        other_labels[0] = attempt % CLASSES
    elif adjacency is privacy.Adjacency.ADD_REMOVE:
        mask[0] = False
    return Samples(vectors, labels), Samples(other_vectors[mask], other_labels[mask])


def check_mechanism_noise() -> str:
    """The noise of every private mechanism is not weaker than its receipts state."""
    lines = []
    for kind in MECHANISMS:
        target = auditor.request_from_options(auditor.AuditOptions(mechanism=kind, rounds=NOISE_RELEASES)).target
        client = target.make_client(antipodal_canary(target).first, SystemNoise())
        client.release(1)
        precision = privacy.accountants.gaussian_precision(client.ledger.events)
        if not precision:
            lines.append(f"{kind} states no noise")
            continue
        share = measure_mu(target) / math.sqrt(precision)
        require(share <= 1 + _RELATIVE_SLACK, f"{kind}: one sample shows {share:.3f} times as much as is stated")
        lines.append(f"{kind} {_noise_energy_text(kind, target)}a sample shows {share:.3f} of what is stated")
    return "; ".join(lines)


def measure_mu(target: AuditTarget) -> float:
    """How far an antipodal pair moves one release, in measured standard deviations of its noise."""
    pair, target = antipodal_canary(target), replace(target, releases=1)
    first, second = (StaticClient.from_samples(target, samples) for samples in pair.datasets)
    before, after = (
        statistics.standardise_upload(client.run(ZeroNoise()).uploads[0], target.clip_norm)
        for client in (first, second)
    )
    draws = [first.run(SystemNoise()).uploads[0] for _ in range(NOISE_RELEASES)]
    noisy = torch.stack([statistics.standardise_upload(upload, target.clip_norm) for upload in draws])
    # a coordinate that neither noise nor the pair changes, such as one that a mechanism drops, carries nothing
    used = (noisy != before).any(dim=0) | (after != before)
    variances = (noisy - before).square().mean(dim=0).sum(dim=1) / used.sum(dim=1).clamp(min=1)
    moved = (after - before).square().sum(1)
    return math.sqrt(float((moved / variances.clamp(min=1e-300)).sum()))


def _noise_energy_text(kind: str, target: AuditTarget) -> str:
    """The energy of the noise on class means against the stated one; empty if no scale is stated."""
    if not isinstance(target.client.release_config.summariser, ClassMeans):
        return ""
    samples = antipodal_canary(target).first
    client = target.make_client(samples, SystemNoise())
    clean = target.make_client(samples, ZeroNoise()).release(1)
    energy, numbers = 0.0, 0
    for round in range(1, NOISE_RELEASES + 1):
        upload = client.release(round)
        diagnostics = client.release_diagnostics
        variance = diagnostics.get("sigma", 0.0) ** 2
        if "sigma_focus" in diagnostics:
            share = diagnostics["chance"]
            variance = share * diagnostics["sigma_focus"] ** 2 + (1 - share) * diagnostics["sigma_rest"] ** 2
        if upload is None or clean is None or not variance:
            return ""
        energy += float((upload.vectors - clean.vectors).double().square().sum()) / variance
        numbers += int(((upload.vectors != 0) | (clean.vectors != 0)).sum())  # others are dropped by the mechanism
    ratio, error = energy / numbers, math.sqrt(2 / numbers)
    # a plug-in that chooses coordinates after the noise sends more of it in each; too little is refused in any case
    deviation = abs(ratio - 1) if kind in MECHANISMS.builtin else 1 - ratio
    require(deviation < _MAX_STANDARD_ERRORS * error, f"{kind}: noise energy is {ratio:.3f} of what is stated")
    return f"noise energy {ratio:.3f} of what is stated, "


def check_system_noise() -> str:
    """Draws differ, have the stated distribution, and a forked process does not repeat its parent.

    The exact sampler decides in double precision wherever rounding cannot change a decision; here the same random bits
    are decided with arbitrary precision too.
    """
    source, scale = SystemNoise(), 2**31
    require(not source.reproducible, "the system's noise calls itself reproducible")
    scales = torch.full((NOISE_DRAWS,), scale)
    require(_decisions_that_differ() == 0, "double precision decides otherwise than exact arithmetic")
    first, second = source.rounded_gaussian(scales).numpy(), source.rounded_gaussian(scales).numpy()
    require(not np.array_equal(first, second), "two draws of noise are equal")
    both = np.concatenate([first, second])
    p_values = {"Gaussian": float(kstest(both / scale, "norm").pvalue)}
    p_values["Laplace"] = float(kstest(source.discrete_laplace(scales).numpy() / scale, "laplace").pvalue)
    for name, p_value in p_values.items():
        require(p_value > _MIN_P_VALUE, f"{name} draws do not have their distribution (p = {p_value:.1g})")
    forked = _draw_in_fork(source)
    require(len(forked) == 8, "a forked process could not draw")
    repeated = np.array_equal(forked, source.rounded_gaussian(scales[:8]).numpy())
    require(not repeated, "a forked process repeats its parent's noise")
    correlation = float(np.corrcoef(first, second)[0, 1])
    require(abs(correlation) < 8 / math.sqrt(NOISE_DRAWS), f"two draws of noise are correlated ({correlation:.3f})")
    least = min(p_values.values())
    return f"{2 * NOISE_DRAWS} draws differ and are normal (p = {least:.2f}), a forked process draws its own"


def _decisions_that_differ() -> int:
    """How many decisions of the sampler by double precision differ from those with arbitrary precision."""
    words = np.frombuffer(os.urandom(24 * EXACT_DECISIONS), dtype=np.uint64).reshape(3, -1)
    scales = np.full(EXACT_DECISIONS, 2**31)
    differ = 0
    for shape in (NORMAL, EXPONENTIAL):
        magnitudes, accepted, certain = attempt(shape, scales, *words)
        for index in np.flatnonzero(certain):
            own = int(words[0][index]), int(words[1][index]), int(words[2][index])
            exact = attempt_exactly(shape, int(scales[index]), own, os.urandom)
            differ += exact != (int(magnitudes[index]), bool(accepted[index]))
    return differ


def _draw_in_fork(source: SystemNoise) -> np.ndarray:
    """What a forked process draws at the same moment."""
    scales = torch.full((8,), 2**31)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child uses no threads
        child = os.fork()
    if child == 0:
        try:
            os.write(writer, source.rounded_gaussian(scales).numpy().tobytes())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        content = stream.read()
    os.waitpid(child, 0)
    return np.frombuffer(content, dtype=np.int64)


def check_encoder_independence() -> str:
    """Public features depend neither on training nor on other records, bit for bit; personal ones do.

    Features on a broadcast feature map may depend on the broadcast, and on nothing else.
    """
    public = [kind for kind in FRAMEWORKS if FRAMEWORKS[kind]().has_uploads]
    for kind in public:
        target = _training_target(privacy.EncoderKind.PUBLIC, kind)
        pair = mislabelled_canary(target)
        require(not target.features_depend_on_training(pair.first), f"{kind}: training changes public features")
        first, second = (_features_after_training(target, samples)[1:] for samples in pair.datasets)
        require(torch.equal(first, second), f"{kind}: one record changes the public features of others")
    broadcast = [kind for kind in FRAMEWORKS if FRAMEWORKS[kind]().with_broadcast_features() is not None]
    for kind in broadcast:
        target = _training_target(privacy.EncoderKind.BROADCAST, kind)
        pair = mislabelled_canary(target)
        untrained = target.make_client(pair.first, ZeroNoise())
        untrained.last_broadcast = target.first_broadcast(target.make_client(pair.first, ZeroNoise()))
        expected = untrained.released_features(pair.first)
        for samples in pair.datasets:
            features = _features_after_training(target, samples, untrained.last_broadcast)
            require(
                torch.equal(features[1:], expected[1:]), f"{kind}: released features depend on more than the broadcast"
            )
        has_map = not torch.equal(expected, pair.first.frozen_features)
        require(has_map, f"the check has no power: {kind} broadcasts no feature map")
    personal = _training_target(privacy.EncoderKind.PERSONAL)
    changes = personal.features_depend_on_training(mislabelled_canary(personal).first)
    require(changes, "the check has no power: personal features do not change")
    return (
        f"public features are bit-identical under {', '.join(public)}, those of a broadcast feature map "
        f"depend only on the broadcast under {', '.join(broadcast)}; personal ones change, as they must"
    )


def _training_target(encoder: privacy.EncoderKind, framework: str = "fedproto") -> AuditTarget:
    small = (*SMALL_DATA, f"framework.kind={framework}", *SMALL_SERVERS.get(framework, ()))
    options = auditor.AuditOptions(rounds=2, encoder=encoder, settings=small)
    return auditor.request_from_options(options).target


def _features_after_training(target: AuditTarget, samples: Samples, broadcast: Any = None) -> Float[Tensor, "n d"]:
    """Released features after one round, by default on the broadcast of the client's own upload."""
    client = target.make_client(samples, ZeroNoise())
    own = target.first_broadcast(client)
    client.finetune(own if broadcast is None else broadcast, 1)
    return client.released_features(samples)


def check_uploads() -> str:
    """Uploads consist of the listed arrays; where counts are private, neighbours upload the same shapes."""
    checked, skipped = 0, []
    for kind in MECHANISMS:
        for adjacency in privacy.Adjacency:
            options = auditor.AuditOptions(mechanism=kind, rounds=2, adjacency=adjacency, settings=SMALL_DATA)
            try:
                target = auditor.request_from_options(options).target
            except InvalidInput:
                skipped.append(f"{kind} {adjacency}")
                continue
            private_counts = target.client.release_config.summariser.counts_are_private(adjacency)
            for pair in pairs_for(target):
                shapes = [
                    _check_upload(f"{kind} {adjacency}", target.make_client(samples, SystemNoise()).release(1))
                    for samples in pair.datasets
                ]
                same = not private_counts or shapes[0] == shapes[1]
                require(same, f"{kind} {adjacency}: {pair.name} changes the shape of the upload")
                checked += 2
    return (
        f"{checked} uploads hold {', '.join(UPLOAD_DTYPES)} and nothing else; hidden counts change no shape"
        f"{'; not supported: ' + ', '.join(skipped) if skipped else ''}"
    )


def _check_upload(case: str, upload: Prototypes | None) -> dict[str, tuple[int, ...]]:
    require(type(upload) is Prototypes, f"{case}: sends {type(upload).__name__}")
    arrays = {} if upload is None else upload.to_arrays()
    for name, array in arrays.items():
        require(name in UPLOAD_DTYPES, f"{case}: sends {name}, which is not on the list")
        require(array.dtype is UPLOAD_DTYPES[name], f"{case}: sends {name} as {array.dtype}")
        require(bool(array.isfinite().all()), f"{case}: {name} are not finite")
        require(array.grad_fn is None, f"{case}: {name} carry a graph")
    return {name: tuple(array.shape) for name, array in arrays.items()}


def check_ledger() -> str:
    """Two releases are charged on disk, a third and an older copy are refused, a second reader sees both charges."""
    mechanism = Igpp.calibrated(BUDGET, 2, clip_norm=1.0)
    context = ReleaseContext(encoder=privacy.EncoderKind.PUBLIC)
    vectors, labels = torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "client.json"
        file = privacy.LedgerFile.create(path, privacy.Ledger(client="client", budget=BUDGET))
        for round in (1, 2):
            mechanism.release(vectors, labels, context).charge_to(file, round=round)
            charged = len(privacy.LedgerFile(path).read().entries) == round
            require(charged, f"release {round} was handed over before it was charged")
        try:
            mechanism.release(vectors, labels, context).charge_to(file, round=3)
        except privacy.BudgetExceeded:
            pass
        else:
            raise SelfTestFailed("a third release passed a budget for two")
        ledger = privacy.LedgerFile(path).read()
        entries, spent = len(ledger.entries), ledger.epsilon_spent
        require(entries == 2, f"a refused release changed the ledger: {entries} entries")
        require(spent <= BUDGET.epsilon, f"spent {spent:.6g} of {BUDGET.epsilon:g}")
        mode = path.stat().st_mode & 0o077
        require(mode == 0, f"others may read the ledger file (mode {mode:o})")
        ledger.entries = ledger.entries[:1]
        path.write_bytes(ledger_file.encode_ledger(ledger))
        try:
            mechanism.release(vectors, labels, context).charge_to(file, round=2)
        except DamagedFile:
            pass
        else:
            raise SelfTestFailed("a ledger that was turned back was charged again")
    return f"charges before it hands over, refuses the third of two and an older copy, reopens ({spent:.4f} spent)"


def check_accountants() -> str:
    """Noise never spends more than its budget, and exact accounting agrees with the closed form."""
    delta = BUDGET.delta
    for epsilon in (0.5, 1.0, 8.0):
        mu = math.sqrt(ROUNDS) / privacy.ACCOUNTANTS["exact"].noise_multiplier(privacy.Budget(epsilon, delta), ROUNDS)
        actual = float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))
        require(abs(actual / delta - 1) < 1e-4, f"delta of epsilon {epsilon:g} is {actual:.8g}, not {delta:g}")
        converted = privacy.accountants.epsilon_from_mu(mu, delta)
        require(abs(converted - epsilon) < 1e-5, f"epsilon {epsilon:g} does not come back")
    selection = privacy.accountants.RepeatedEvent(privacy.accountants.PureEvent(0.1 / ROUNDS), ROUNDS)
    for name, accountant in privacy.ACCOUNTANTS.items():
        for pure_events in (None, selection):
            gaussian = privacy.GaussianEvent(accountant.noise_multiplier(BUDGET, ROUNDS, pure_events))
            events: tuple[privacy.Event, ...] = (gaussian,) * ROUNDS
            if pure_events is not None:
                events = (pure_events.event,) * ROUNDS + events
            spent = accountant.epsilon(events, delta)
            require(spent <= BUDGET.epsilon, f"the {name} accountant spends {spent:.8g} of epsilon {BUDGET.epsilon:g}")
            require(privacy.ACCOUNTANTS["joint"].epsilon(events, delta) <= spent, f"joint is looser than {name}")
    pure = privacy.ACCOUNTANTS["exact"].epsilon(
        (privacy.accountants.PureEvent(0.25), privacy.accountants.PureEvent(0.5)), delta
    )
    require(abs(pure - 0.75) < 1e-12, f"0.25 and 0.5 of pure epsilon add up to {pure:g}")
    return f"{', '.join(privacy.ACCOUNTANTS)}: closed forms met, no budget overspent over {ROUNDS} releases"


CHECKS: dict[str, Callable[[], str]] = {
    "versions": check_versions,
    "sensitivities": check_sensitivities,
    "noise of mechanisms": check_mechanism_noise,
    "noise of the system": check_system_noise,
    "encoder independence": check_encoder_independence,
    "uploads": check_uploads,
    "ledger": check_ledger,
    "accountants": check_accountants,
}
_FAILURES = (SelfTestFailed, VpdrError, OSError, ArithmeticError, RuntimeError, ValueError, TypeError, LookupError)


def run_selftests(checks: dict[str, Callable[[], str]] | None = None) -> Iterator[SelfTestResult]:
    """Run each check; one that raises has failed, and the others still run."""
    for name, check in (checks or CHECKS).items():
        try:
            yield SelfTestResult(name, True, check())
        except _FAILURES as error:
            yield SelfTestResult(name, False, f"{type(error).__name__}: {error}")
