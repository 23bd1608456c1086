"""What all mechanisms share: noise sources, the context of a release, clipping, and the Gaussian mechanism."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import torch

from vpdr import privacy
from vpdr.privacy import Adjacency, EncoderKind, NoiseOrigin, guarantee
from vpdr.prototypes import ClassMeans, NoSensitivity, Summariser
from vpdr.rng import MAX_SAMPLES, Grid, Streams, add_noise, discrete_laplace, rounded_gaussian
from vpdr.types import Features, Float, Int, Int64, MechanismState, Prototypes, Release, Tensor
from vpdr.validation import InvalidInput

Array: TypeAlias = Tensor | np.ndarray
MIN_CLIP_NORM, MAX_CLIP_NORM = 1e-12, 1e12


@runtime_checkable
class NoiseSource(Protocol):
    """Noise in whole numbers; vpdr/rng.py says of what.

    Guarantee: draws are independent, across calls too.
    """

    @property
    def reproducible(self) -> bool:
        """Whether somebody who knows the seed can remove the noise; such a run is not private."""

    def rounded_gaussian(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        """A standard normal draw times the scale, rounded to the nearest whole number, for each scale."""

    def discrete_laplace(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        """Whole numbers x with probability proportional to exp(-|x|/scale), one for each scale."""


@dataclass(frozen=True, slots=True)
class SystemNoise:
    """Exact noise from the entropy of the operating system: the default for private releases.

    Guarantee: that of `NoiseSource`, exactly; nobody can repeat a draw.

    >>> SystemNoise().rounded_gaussian(torch.full((2, 3), 1000)).shape
    torch.Size([2, 3])
    """

    reproducible = False  # no seed exists

    def rounded_gaussian(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        return rounded_gaussian(scales)

    def discrete_laplace(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        return discrete_laplace(scales)


@dataclass(frozen=True, slots=True)
class SeededNoise:
    """Reproducible noise for simulations: the same seed gives the same release, so nothing is secret.

    Args:
        rng: the generator from which all draws are taken.

    Guarantee: the same state of the generator gives the same draws; they are not secret. They are on the same grid as
    `SystemNoise`, with the distribution that double precision can give.

    >>> SeededNoise(torch.Generator().manual_seed(0)).reproducible
    True
    """

    reproducible = True  # whoever knows the seed can subtract the noise

    rng: torch.Generator

    def rounded_gaussian(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        """Rounded draws of `torch.randn`."""
        normal = torch.randn(scales.shape, generator=self.rng, dtype=torch.float64)
        return normal.mul_(scales).round_().to(torch.int64)

    def discrete_laplace(self, scales: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        """Rounded Laplace draws, by inversion."""
        uniform = torch.rand(scales.shape, generator=self.rng, dtype=torch.float64).clamp(min=2.0**-54)
        centred = uniform - 0.5
        laplace = -centred.sign() * torch.log1p(-2 * centred.abs())
        return laplace.mul_(scales).round_().to(torch.int64)


@dataclass(frozen=True, slots=True)
class ReleaseNoise:
    """The noise source of each release and of each private training step.

    Guarantee: with streams, whoever knows the seed can remove the noise, and every receipt says so.
    """

    streams: Streams | None  # of a seeded simulation; None: entropy of the operating system

    def __call__(self, client: str, round: int, purpose: privacy.ChargePurpose) -> NoiseSource:
        """A source whose draws are independent of those of every other client, round and purpose."""
        if self.streams is None:
            return SystemNoise()
        return SeededNoise(self.streams.generator(purpose, client=client, round=round))


@dataclass(frozen=True, kw_only=True)
class ReleaseContext:
    """Everything that one release may depend on besides the client's own features.

    The defaults suit plain arrays: class means, noise from the operating system, and the weakest
    assumption about the encoder (trained on the client's data).

    Args:
        client: the client's name, for error messages.
        round: the round of the release, starting at 1.
        classes: the public number of classes; labels beyond it are refused. None: not declared.
        summariser: the rule that turns clipped features into prototypes.
        encoder: how the encoder that made the features was trained.
        noise: the source of the privacy noise.
        last_broadcast: the prototypes that the server broadcast last. Public.
        state: the `Release.state` of this client's previous release; empty before the first one.

    Raises:
        InvalidInput: an unknown kind of encoder.

    Guarantee: a receipt uses public fields only, and of `state` only which releases were made before.

    >>> ReleaseContext(client="hospital-a", encoder="public").encoder.is_trained_on_private_data
    False
    """

    client: str = "client"
    round: int = 1
    classes: int | None = None
    summariser: Summariser = field(default_factory=ClassMeans)
    encoder: EncoderKind = EncoderKind.PERSONAL
    noise: NoiseSource = field(default_factory=SystemNoise)
    last_broadcast: Prototypes | None = None
    state: MechanismState = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoder", privacy.guarantee.parse_enum(EncoderKind, self.encoder))


@dataclass(frozen=True, kw_only=True, slots=True)
class MechanismTraits:
    """What a configuration must know of a kind of mechanism before one is built."""

    is_private: bool = True  # its releases cost a finite budget
    is_exact: bool = False  # its statistics and its noise are whole numbers of a public grid: see vpdr/rng.py
    has_selection: bool = False  # it pays for a choice of coordinates besides its noise
    is_accumulating: bool = False  # it adds released sums up, so the features must not change between rounds


@dataclass(frozen=True, kw_only=True, slots=True)
class MechanismConfig:
    """All settings from which `from_config` of a mechanism may choose; everything here is public."""

    budget: privacy.Budget  # what one client may spend over all releases
    releases: int  # how many releases the budget must last for
    clip_norm: float  # R, the l2 norm to which features are clipped
    dim: int  # of the features
    classes: int  # the public number of classes
    adjacency: Adjacency
    accountant: str  # the name of the accountant that calibrates the noise
    samples_per_class: int  # the declared number of samples of one class at one client; 0: not declared
    rng: torch.Generator  # a public stream, the same for all clients, for a release projection
    options: Mapping[str, Any] = field(default_factory=dict)  # the mechanism's own; others are ignored


@runtime_checkable
class Mechanism(Protocol):
    """Turns private features into prototypes that may be sent, and states the privacy cost.

    Guarantee: everything in `Release.prototypes` depends on the features only through the events of
    `Release.receipt`, under the receipt's terms; the receipt itself depends on no feature and no label.
    `Release.state` may be private and stays on the client.
    """

    traits: ClassVar[MechanismTraits]

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of the receipts."""

    @classmethod
    def from_config(cls, config: MechanismConfig) -> Self:
        """The mechanism, calibrated to the budget of the configuration.

        Args:
            config: the budget, the public numbers, and the mechanism's own options.

        Returns:
            The mechanism; `config.releases` releases of one client stay within the budget.

        Raises:
            InvalidInput: no noise satisfies the budget, or a setting is out of range.
        """

    def receipt_for(self, context: ReleaseContext = ReleaseContext()) -> privacy.Receipt:
        """The receipt that `release` would return, from public numbers and the number of earlier releases.

        A client whose failures are observable charges this first, so that even a failure is paid for.

        Args:
            context: the context that `release` will get.

        Returns:
            The events and the terms of the release.
        """

    def release(self, vectors: Array, labels: Array, context: ReleaseContext = ReleaseContext()) -> Release:
        """One release of a client.

        Args:
            vectors: features [n d], as a torch or numpy array of floating-point numbers. Private.
            labels: the class of each feature [n], as integers. Private.
            context: the round, the summariser, the source of the noise, and what the last release left.

        Returns:
            The prototypes with their receipt, diagnostics, and the state for the next release.

        Raises:
            InvalidInput: the arrays do not fit each other, the context or the mechanism, or hold NaN or
                infinity; or the summariser has no sensitivity under the adjacency.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """What `vpdr calibrate` says of a mechanism; `details` are printed by name and are entries of its JSON."""

    noise_multiplier: float  # of one release
    events: tuple[privacy.Event, ...]  # of all releases together
    reading: str  # what the numbers mean, in one line
    relative_energy: float | None = None  # noise energy relative to isotropic noise of the same multiplier
    details: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class DescribesCalibration(Protocol):
    """A mechanism that can say more of its calibration than its receipts do. This is optional."""

    @classmethod
    def calibration(cls, config: MechanismConfig) -> Calibration:
        """The noise of all releases under this configuration; no data are needed."""


def check_plug_in(name: str, kind: object) -> None:
    """Refuse what cannot be registered: a class states its traits, and makes a mechanism from a configuration."""
    members = ("traits", "from_config")
    if missing := [each for each in members if each not in dir(kind)]:
        raise InvalidInput(f"mechanism {name!r} lacks {', '.join(missing)}; see vpdr.mechanisms.Mechanism")


def validate_features(vectors: Array, labels: Array, context: ReleaseContext) -> Features:
    """The input of a release in double precision on the CPU, checked before anything is computed from it."""
    client = context.client
    tensor = _as_tensor(vectors, client, "features")
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        raise InvalidInput(f"{client}: expected features of shape [samples, dimensions], got {list(tensor.shape)}")
    if not tensor.is_floating_point():
        raise InvalidInput(f"{client}: expected features as floating-point numbers, got {tensor.dtype}")
    rows = tensor.detach().to("cpu", torch.float64)
    # a finite sum proves that all entries are finite, at a tenth of the cost of a check of each entry
    if not bool(rows.sum().isfinite()) and not bool(rows.isfinite().all()):
        bad = int((~rows.isfinite()).any(dim=1).sum())
        raise InvalidInput(
            f"{client}: {bad} of {len(rows)} features hold NaN or infinity; nothing was released, "
            "check the data and the encoder that made them"
        )
    tensor = _as_tensor(labels, client, "labels")
    if tensor.ndim != 1:
        raise InvalidInput(f"{client}: expected labels of shape [samples], got {list(tensor.shape)}")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        raise InvalidInput(f"{client}: expected labels as integers, got {tensor.dtype}")
    classes = tensor.detach().to("cpu", torch.int64)
    if len(rows) != len(classes):
        raise InvalidInput(f"{client}: expected one label for each feature, got {len(rows)} and {len(classes)}")
    if len(classes) and int(classes.min()) < 0:
        raise InvalidInput(f"{client}: labels must not be negative, got {int(classes.min())}")
    if len(rows) > MAX_SAMPLES:  # their sums could leave the range of 64-bit integers
        raise InvalidInput(f"{client}: expected at most {MAX_SAMPLES} samples, got {len(rows)}")
    if context.classes is not None and len(classes) and int(classes.max()) >= context.classes:
        raise InvalidInput(f"{client}: labels must be below {context.classes}, got {int(classes.max())}")
    return Features(rows, classes)


def _as_tensor(value: Any, client: str, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    try:
        return torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{client}: expected {name} as a torch or numpy array, got {type(value).__name__}"
        ) from error


def clip(vectors: Float[Tensor, "n d"], bound: float) -> Float[Tensor, "n d"]:
    """Scale each row down to l2 norm `bound`; shorter rows are left as they are (Eq. 4).

    Samples are clipped by `Grid.clip`; this is for public vectors.
    """
    norms: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors * (bound / norms.clamp(min=bound))


def check_clip_norm(clip_norm: float) -> None:
    """Refuse a clip norm at which the noise or its square would overflow in single precision.

    A server may choose the clip norm, so it must not be able to provoke an overflow that depends on the data.
    """
    if not MIN_CLIP_NORM <= clip_norm <= MAX_CLIP_NORM:
        raise InvalidInput(
            f"clip_norm must be a positive number between {MIN_CLIP_NORM:g} and {MAX_CLIP_NORM:g}, "
            f"got {clip_norm:g}; use about the norm of a feature"
        )


# The Gaussian mechanism on sums: the one place where Gaussian noise is added to a release.


@dataclass(frozen=True, slots=True, repr=False)  # as for features
class RowSums:
    """The sum of the samples of each row in whole steps of a grid, with their number. Private."""

    sums: Int64[Tensor, "p d"]
    labels: Int[Tensor, " p"]
    sizes: Int[Tensor, " p"]
    grid: Grid

    @classmethod
    def of(cls, summariser: Summariser, clipped: Int64[Tensor, "n d"], labels: Int[Tensor, " n"], grid: Grid) -> Self:
        """Add up samples that are on the grid: exact, so their order does not matter."""
        rows = summariser.assign(clipped, labels)
        return cls(rows.sum(clipped), rows.labels, rows.sizes, grid)


@dataclass(frozen=True, slots=True)
class NoisyRows:
    """Rows and counts after noise, before post-processing; `stds` is the noise of a row before scaling."""

    rows: Float[Tensor, "p d"]
    sizes: Float[Tensor, " p"]
    stds: Float[Tensor, " p"]


def noisy_rows(
    row_sums: RowSums,
    summariser: Summariser,
    noise: NoiseSource,
    *,
    noise_multiplier: float,
    clip_norm: float,
    adjacency: Adjacency,
    coord_scale: Float[Tensor, " d"],
) -> NoisyRows:
    """Add Gaussian noise to each sum, and to each count that must stay private; then divide means by their size.

    `coord_scale` is the noise of each coordinate, relative to isotropic noise.

    Guarantee: one Gaussian event of `noise_multiplier`, exactly, provided that samples were clipped on the grid to
    `clip_norm`, or groups of their coordinates so that `coord_scale` is κ/√w on a group of radius κR with Σw = 1, and
    that the summariser's sensitivity is a bound.
    """
    stds = noise_multiplier * summariser.sensitivity(adjacency, clip_norm, row_sums.sizes)
    divisors = summariser.divisors(row_sums.sizes).double()[:, None]
    rows = add_gaussian(row_sums.sums, stds[:, None] * divisors * coord_scale, row_sums.grid, noise) / divisors
    sizes = row_sums.sizes.double()
    if summariser.counts_are_private(adjacency):
        unit = Grid.for_noise(1.0, noise_multiplier)
        sizes = add_gaussian(row_sums.sizes * unit.steps(1.0), stds / clip_norm, unit, noise)
    return NoisyRows(rows, sizes, stds)


def add_gaussian(
    whole: Int64[Tensor, "..."], stds: Float[Tensor, "..."], grid: Grid, noise: NoiseSource
) -> Float[Tensor, "..."]:
    """Whole steps of a grid after Gaussian noise of these standard deviations, as real numbers.

    Guarantee: post-processing of real-valued Gaussian noise of at least these standard deviations on the same numbers.
    """
    return grid.to_real(add_noise(whole, noise.rounded_gaussian(grid.noise_scale(stds))))


@dataclass(frozen=True, kw_only=True, slots=True)
class GaussianMechanism:
    """What mechanisms with Gaussian noise share; each says itself what the fields mean for it."""

    clip_norm: float
    noise_multiplier: float
    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)
        privacy.GaussianEvent(self.noise_multiplier)  # refuses a multiplier out of range
        object.__setattr__(self, "adjacency", privacy.guarantee.parse_enum(Adjacency, self.adjacency))

    def make_grid(self, coord_scale: Float[Tensor, " d"]) -> Grid:
        """The grid of a release, from public numbers; `coord_scale` as in `noisy_rows`, in any order."""
        return Grid.for_noise(self.clip_norm, self.noise_multiplier * self.clip_norm * float(coord_scale.max()))

    def add_noise(self, row_sums: RowSums, context: ReleaseContext, coord_scale: Float[Tensor, " d"]) -> NoisyRows:
        """`noisy_rows` for the context's summariser."""
        return noisy_rows(
            row_sums,
            context.summariser,
            context.noise,
            noise_multiplier=self.noise_multiplier,
            clip_norm=self.clip_norm,
            adjacency=self.adjacency,
            coord_scale=coord_scale,
        )


def postprocess_rows(
    noisy: NoisyRows, labels: Int[Tensor, " p"], coord_scale: Float[Tensor, " d"], summariser: Summariser
) -> Prototypes:
    """What leaves the client: prototypes in single precision and their labels, no counts; post-processing.

    Variances reveal how much noise a vector holds; the summariser decides whether they may be published.
    """
    variances = summariser.variances(noisy.stds * coord_scale.square().mean().sqrt(), noisy.sizes)
    vectors = to_finite_float32(summariser.postprocess(noisy.rows, noisy.sizes))
    return Prototypes(vectors, labels, None if variances is None else to_finite_float32(variances))


def to_finite_float32(values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """NaN becomes 0, infinity the largest finite number."""
    return torch.nan_to_num(values.float())


def guarantee_terms(
    adjacency: Adjacency,
    encoder: EncoderKind,
    noise: NoiseSource,
    basis: guarantee.SensitivityBasis,
    counts_are_private: bool,
    is_exact: bool = False,
) -> guarantee.GuaranteeTerms:
    """The conditions under which a receipt holds; a mechanism states that it is exact, or it is not."""
    return guarantee.GuaranteeTerms(
        adjacency=adjacency,
        encoder=encoder,
        counts=guarantee.CountVisibility.PRIVATE if counts_are_private else guarantee.CountVisibility.PUBLIC,
        basis=basis,
        noise=NoiseOrigin.SEEDED if noise.reproducible else NoiseOrigin.SYSTEM,
        arithmetic=guarantee.Arithmetic.INTEGER if is_exact else guarantee.Arithmetic.FLOATING,
    )


def release_terms(adjacency: Adjacency, context: ReleaseContext, *, is_exact: bool = False) -> guarantee.GuaranteeTerms:
    """The terms of a release that is made by the context's summariser."""
    summariser = context.summariser
    private = summariser.counts_are_private(adjacency)
    return guarantee_terms(adjacency, context.encoder, context.noise, summariser.basis, private, is_exact)


def noise_to_signal(
    row_sums: RowSums, summariser: Summariser, noisy: NoisyRows, coord_scale: Float[Tensor, " d"]
) -> float:
    """The median over non-empty prototypes of the expected noise norm divided by the clean norm. Private."""
    nonempty = row_sums.sizes > 0
    clean = row_sums.grid.to_real(row_sums.sums) / summariser.divisors(row_sums.sizes)[:, None]
    signal, noise = clean[nonempty].norm(dim=1), noisy.stds[nonempty] * coord_scale.norm()
    ratio = torch.where(signal > 0, noise / signal.clamp(min=1e-300), torch.inf)
    return float(ratio.median()) if len(ratio) else 0.0


def describe_sensitivity(adjacency: Adjacency, summariser: Summariser) -> str:
    """The sensitivity of the released rows in words, for samples of norm at most R."""
    try:
        single, many = summariser.sensitivity(adjacency, 1.0, torch.tensor([1, 100])).tolist()
    except NoSensitivity as error:
        return f"none: {error}"
    size = f"{single:.4g} R" if single == many else f"{single:.4g} R / n"
    counts = "counts hidden with it" if summariser.counts_are_private(adjacency) else "counts public"
    return f"l2 {size} ({counts}, {summariser.basis})"
