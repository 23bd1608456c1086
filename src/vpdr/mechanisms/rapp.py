"""Recentred, Accumulated Prototype Perturbation (RAPP).

The algorithm, top to bottom: the budget is split over stages (`StageSchedule`). In each stage the client sums the
residuals of its features around centres that are already public, clipped to a radius that is already public
(`stage_statistics`), and adds noise (`noisy_stage_statistics`). The noisy sums of all stages are added up
(`RappState`, `run_stage`); from them and from the last broadcast follow the centres and the radius of the next stage
(`centres_from_broadcast`, `Rapp._prepare_stage`), and the prototypes that are sent (`Rapp.release`). docs/privacy.md,
section 13, has the proof.
Shapes: n samples, c classes, p rows (centres of all classes), d dimensions of features, r of the release.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch

from vpdr import privacy
from vpdr.mechanisms import base
from vpdr.mechanisms.base import Array, ReleaseContext
from vpdr.privacy import Adjacency, Budget, GaussianEvent, guarantee
from vpdr.prototypes import ClassMeans, ClassSums, shrinkage
from vpdr.rng import Grid, row_norms
from vpdr.types import Features, Float, Int64, MechanismState, Prototypes, Release, Tensor
from vpdr.validation import InvalidInput, at_least

_MIN_DIMS = 64  # below, classes begin to overlap
_MAX_NOISE_RATIO = 0.2  # of the noise in a squared distance, relative to the square of a class radius
_ROW_CHUNK, _COLUMN_CHUNK = 1024, 64  # of a feature matrix that are projected at once: they fit into a cache
_ROW_MULTIPLE = 256  # rows are padded to a multiple of it


@dataclass(frozen=True, slots=True)
class ReleaseProjection:
    """u = z @ basis and z = u @ basis.T, for a basis with orthonormal columns: r of d dimensions.

    Args:
        basis: an orthonormal basis of the subspace; a square basis is read as the identity.

    Guarantee: the projection is public and fixed before the data are seen, and it is linear in one sample,
    so it changes no sensitivity: samples are clipped after it. Noise that is equal in all coordinates of u
    has the covariance basis @ basis.T in z.

    >>> projection = ReleaseProjection.random(512, 64, torch.Generator().manual_seed(0))
    >>> projection.dims, projection.project(torch.ones(3, 512)).shape
    ((512, 64), torch.Size([3, 64]))
    """

    basis: Float[Tensor, "d r"]

    @classmethod
    def identity(cls, dim: int) -> "ReleaseProjection":
        """The feature space itself."""
        return cls(torch.eye(dim, dtype=torch.float64))

    @classmethod
    def random(cls, dim: int, num_dims: int, rng: torch.Generator) -> "ReleaseProjection":
        """A uniformly drawn subspace of `num_dims` dimensions; the identity where that is all of them."""
        if not 1 <= num_dims <= dim:
            raise InvalidInput(f"a release of {dim} dimensions can keep 1 to {dim} of them, got {num_dims}")
        if num_dims == dim:
            return cls.identity(dim)
        return cls(torch.nn.init.orthogonal_(torch.empty(dim, num_dims, dtype=torch.float64), generator=rng))

    @property
    def dims(self) -> tuple[int, int]:
        """The dimension of the features, and that of the release."""
        return self.basis.shape[0], self.basis.shape[1]

    @property
    def is_identity(self) -> bool:
        """Whether features are released in their own space."""
        return self.dims[0] == self.dims[1]

    @property
    def norm_ratio(self) -> float:
        """How much shorter a typical feature becomes: √(r/d)."""
        return math.sqrt(self.dims[1] / self.dims[0])

    @property
    def mean_variance(self) -> float:
        """The mean variance over the coordinates of z where each coordinate of u has variance 1: r/d."""
        return float(self.basis.square().sum()) / self.dims[0]

    def project(self, vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n r"]:
        """Project each sample, in single precision.

        How a row of a small matrix product is rounded depends on the number of rows and on its place among
        them; rows and columns are padded to whole chunks, so that a sample is projected to the same bits
        whatever the other samples are. A sample that overflows becomes the zero vector, which can be clipped.
        """
        if self.is_identity:
            return vectors
        blocks = [
            torch.nn.functional.pad(block, (0, _COLUMN_CHUNK - block.shape[1])).contiguous()
            for block in self.basis.float().split(_COLUMN_CHUNK, dim=1)
        ]
        padded = _ROW_MULTIPLE * math.ceil(len(vectors) / _ROW_MULTIPLE)
        projected = torch.empty(padded, _COLUMN_CHUNK * len(blocks))
        for rows, out in zip(vectors.split(_ROW_CHUNK), projected.split(_ROW_CHUNK), strict=True):
            chunk = torch.zeros(len(out), self.dims[0])
            chunk[: len(rows)] = rows
            for block, columns in zip(blocks, out.split(_COLUMN_CHUNK, dim=1), strict=True):
                torch.mm(chunk, block, out=columns)
        if not bool(projected.sum().isfinite()):
            projected = torch.where(projected.isfinite().all(dim=1, keepdim=True), projected, 0.0)
        return projected[: len(vectors), : self.dims[1]].contiguous()

    def lift(self, vectors: Float[Tensor, "n r"]) -> Float[Tensor, "n d"]:
        """The points of the feature space, in double precision."""
        return vectors if self.is_identity else vectors.double() @ self.basis.T


def default_release_dim(dim: int, budget: Budget, samples_per_class: int) -> int:
    """How many dimensions a release should have, from public numbers alone.

    A random subspace of r dimensions shortens distances between classes, radii and noise alike. What it
    saves is the squared noise in a distance, which spreads by √(2r)·(2/(μn))² class radii: r is the largest
    dimension at which that stays below a fifth. Nothing is dropped where `samples_per_class`, the declared
    number of samples of one class at one client, is 0.
    """
    if samples_per_class <= 0:
        return dim
    noise = (2 * privacy.get_accountant("exact").noise_multiplier(budget, 1) / samples_per_class) ** 2
    return max(min(dim, math.floor((_MAX_NOISE_RATIO / noise) ** 2 / 2)), min(_MIN_DIMS, dim))


# little of the budget while centres are unknown, most of it once residuals are short
DEFAULT_STAGE_SHARES = (0.05, 0.10, 0.15, 0.30, 0.40)

_PRIOR_SPREAD = 0.4  # assumed relative error of the square of the declared clip norm
_MAX_DISTANCE = 1e4  # of a centre from the origin, in clip norms: beyond is a mistake or an attack
_MIN_MOMENT_RATIO = 0.1  # of the second moment that one update of the centres may leave
_MIN_MOMENT = 0.02  # of the square of the declared clip norm
_EMPTY_RATIO = 0.3  # of the mean count of a class's centres: a centre with fewer samples is empty
_CHUNK_SIZE = 1000  # samples whose residuals exist at the same time: they fit into a cache
_DECAY = 0.1  # of earlier stages with several centres a class, because samples change rows


@dataclass(frozen=True, slots=True)
class Stage:
    """The noise of one stage: on sums and counts, and on the second moment (None: not released)."""

    sums: GaussianEvent
    moment: GaussianEvent | None

    @property
    def events(self) -> tuple[GaussianEvent, ...]:
        """The cost of the stage."""
        return (self.sums,) if self.moment is None else (self.sums, self.moment)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSchedule:
    """How the budget is split over stages, and the stages over releases.

    With fewer releases than stages a release holds several stages; with more releases than shares the
    shares are subdivided, so that every release is one stage.
    """

    releases: int
    shares: tuple[float, ...] = DEFAULT_STAGE_SHARES  # of μ², relative to each other
    moment_share: float = 0.03  # the part of each stage for the second moment, which sets the radius

    def __post_init__(self) -> None:
        privacy.accountants.check_rounds(self.releases)
        if not self.shares or not all(0 < share < math.inf for share in self.shares):
            raise InvalidInput(f"stage shares must be positive numbers, got {list(self.shares)}; use 5,10,15,30,40")
        if not 0 <= self.moment_share < 1:
            raise InvalidInput(f"moment_share must lie in [0, 1), got {self.moment_share:g}; use 0.03")

    @property
    def count(self) -> int:
        """The number of stages."""
        return max(len(self.shares), self.releases)

    def share(self, number: int) -> float:
        """The part of μ² that a stage may spend; all add up to 1. Beyond the last stage, that of the last."""
        number = min(number, self.count - 1)
        return self._cumulative_share((number + 1) / self.count) - self._cumulative_share(number / self.count)

    def _cumulative_share(self, progress: float) -> float:
        """The part of μ² up to this point of the run: piecewise linear in `progress`."""
        position = progress * len(self.shares)
        whole = min(int(position), len(self.shares) - 1)
        done = math.fsum([*self.shares[:whole], (position - whole) * self.shares[whole]])
        return done / math.fsum(self.shares)

    def stages_in_release(self, done: int) -> range:
        """The stages of the next release, after `done` stages."""
        ends = (math.ceil((release + 1) * self.count / self.releases - 1e-9) for release in range(self.releases))
        return range(done, next((end for end in ends if end > done), done + 1))  # beyond: the ledger will refuse it

    def stage(self, number: int, noise_multiplier: float) -> Stage:
        """The noise of a stage, where one single release of everything would have this multiplier.

        Precisions 1/σ² add up, so the events of all stages together cost what that one release would.
        """
        share, moment = self.share(number), self.moment_share
        sums = GaussianEvent(noise_multiplier / math.sqrt(share * (1 - moment)))
        return Stage(sums, GaussianEvent(noise_multiplier / math.sqrt(share * moment)) if moment else None)


def parse_shares(text: str) -> tuple[float, ...]:
    """Stage shares from a configuration: numbers separated by commas, in any unit."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"stages must be numbers with commas between, got {text!r}; use 5,10,15,30,40") from None


def effective_adjacency(stated: Adjacency, per_class: int) -> Adjacency:
    """The adjacency whose bounds apply to the rows.

    With several centres a class a sample that keeps its label may still change its row, and the number of
    samples in a row is private: what holds for a changed label holds for a changed row.
    """
    if per_class > 1 and stated is Adjacency.REPLACE_SAME_LABEL:
        return Adjacency.REPLACE_ONE
    return stated


@dataclass(frozen=True, kw_only=True, slots=True)
class StageParams:
    """The parameters of a stage. Public, and fixed before the data are used."""

    centres: Float[Tensor, "p r"]
    radius: float
    per_class: int
    adjacency: Adjacency  # the effective one: see `effective_adjacency`
    num_samples: int | None  # the client's number of samples, where it is public


def stage_statistics(
    features: Features, params: StageParams, grid: Grid, moment_grid: Grid
) -> tuple[base.RowSums, Int64[Tensor, ""]]:
    """Everything in a stage that depends on the data: sums of clipped residuals and counts, and the second moment.

    The second moment is Σ over samples of min(|residual|²/4R², 1). Both are in whole steps of their grids.

    Guarantee: let R be the radius, whatever it and the centres are. (sums/R, counts) moves by what
    `ClassSums` states under the params' adjacency, because a clipped residual is a function of one sample
    and at most R long; the second moment moves by at most 1, because a sample adds between 0 and 1 to it.
    """
    most, count = moment_grid.steps(1.0), len(params.centres)
    sums = torch.zeros(params.centres.shape, dtype=torch.int64)
    sizes, second_moment = torch.zeros(count, dtype=torch.int64), torch.zeros((), dtype=torch.int64)
    for labels, vectors in zip(
        features.labels.split(_CHUNK_SIZE), features.vectors.double().split(_CHUNK_SIZE), strict=True
    ):
        rows = labels
        if params.per_class > 1:  # the nearest centre of its class
            centres = [labels * params.per_class + k for k in range(params.per_class)]
            distances = [row_norms(vectors - params.centres[each]) for each in centres]
            rows = labels * params.per_class + torch.cat(distances, dim=1).argmin(dim=1)
        residuals = params.centres.index_select(0, rows).neg_().add_(vectors)
        ratios = (row_norms(residuals) / (2 * params.radius)).square_().clamp_(max=1)
        second_moment += (torch.nan_to_num(ratios, nan=1.0) * most).floor_().to(torch.int64).sum()
        chunk = base.RowSums.of(ClassSums(classes=count), grid.clip(residuals, params.radius), rows, grid)
        sums += chunk.sums
        sizes += chunk.sizes
    return base.RowSums(sums, torch.arange(count), sizes, grid), second_moment


@dataclass(frozen=True, slots=True)
class NoisyStatistics:
    """The statistics of a stage after noise. Public."""

    rows: base.NoisyRows  # sums and counts
    second_moment: Float[Tensor, ""] | None  # None where the stage has no second moment


def noisy_stage_statistics(
    features: Features, params: StageParams, stage: Stage, noise: base.NoiseSource
) -> NoisyStatistics:
    """The statistics of a stage, each with its noise: the only use of the data in a release.

    Guarantee: the events of `stage` under the params' adjacency, for any centres and any radius: noise on
    what `stage_statistics` bounds, of a scale that does not depend on the data.
    """
    multiplier = stage.sums.noise_multiplier
    moment_multiplier = 1.0 if stage.moment is None else stage.moment.noise_multiplier
    grid, moment_grid = (
        Grid.for_noise(params.radius, multiplier * params.radius),
        Grid.for_noise(1.0, moment_multiplier),
    )
    row_sums, second_moment = stage_statistics(features, params, grid, moment_grid)
    rows = base.noisy_rows(
        row_sums,
        ClassSums(classes=len(params.centres)),
        noise,
        noise_multiplier=multiplier,
        clip_norm=params.radius,
        adjacency=params.adjacency,
        coord_scale=torch.ones(features.vectors.shape[1], dtype=torch.float64),
    )
    if stage.moment is None:
        return NoisyStatistics(rows, None)
    std = torch.tensor([moment_multiplier], dtype=torch.float64)
    return NoisyStatistics(rows, base.add_gaussian(second_moment[None], std, moment_grid, noise)[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class RappState:
    """What a client's stages have released so far, added up. Public: it is made of noisy numbers.

    The names of the fields are the keys of `Release.state`, in checkpoints too.
    """

    stage: int  # number of stages done
    weight: Float[Tensor, ""]  # Σ w over stages, w = 1/noise² of a sum
    sums: Float[Tensor, "p r"]  # Σ w · noisy sums of residuals
    centred: Float[Tensor, "p r"]  # Σ w · centres
    counts: Float[Tensor, " p"]  # Σ of noisy counts, each times its precision
    counted: Float[Tensor, ""]  # Σ of those precisions
    centres: Float[Tensor, "p r"]  # of the last stage
    moment: Float[Tensor, ""]  # estimated mean squared distance of a sample from its centre
    moment_weight: Float[Tensor, ""]  # precision of `moment`

    @classmethod
    def initial(cls, rows: int, dim: int, radius: float) -> "RappState":
        """Before the first stage: only the declared radius is known."""
        zero, zeros = torch.zeros((), dtype=torch.float64), torch.zeros(rows, dim, dtype=torch.float64)
        square = torch.tensor(radius**2, dtype=torch.float64)
        return cls(
            stage=0,
            weight=zero,
            sums=zeros,
            centred=zeros,
            counts=torch.zeros(rows, dtype=torch.float64),
            counted=zero,
            centres=zeros,
            moment=square,
            moment_weight=(_PRIOR_SPREAD * square) ** -2,
        )

    def to_dict(self) -> MechanismState:
        """The state as tensors by name."""
        tensors = {name: getattr(self, name) for name in self.__slots__}
        return {**tensors, "stage": torch.tensor(self.stage)}

    @classmethod
    def from_dict(cls, state: MechanismState) -> "RappState":
        """The inverse of `to_dict`."""
        fields: dict[str, Any] = {**state, "stage": int(state["stage"])}
        return cls(**fields)

    def estimate(self, counts: Float[Tensor, " p"]) -> Float[Tensor, "p r"]:
        """The mean of each row: the centres plus the mean residual, over all stages."""
        return (self.centred + self.sums / counts[:, None]) / self.weight

    def variances(self, counts: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """The noise in each coordinate of `estimate`."""
        return 1 / (counts.square() * self.weight)


def run_stage(
    features: Features, state: RappState, params: StageParams, stage: Stage, noise: base.NoiseSource
) -> RappState:
    """Add the noisy statistics of a stage to the state.

    Guarantee: that of `noisy_stage_statistics`; the rest is post-processing.
    """
    noisy = noisy_stage_statistics(features, params, stage, noise)
    rows, precision = noisy.rows, noisy.rows.stds[0] ** -2
    decay = 1.0 if params.per_class == 1 else _DECAY
    state = replace(
        state,
        stage=state.stage + 1,
        weight=decay * state.weight + precision,
        sums=decay * state.sums + precision * rows.rows,
        centred=decay * state.centred + precision * params.centres,
        counts=decay * state.counts + precision * params.radius**2 * rows.sizes,
        counted=decay * state.counted + precision * params.radius**2,
        centres=params.centres,
    )
    if noisy.second_moment is None or stage.moment is None:
        return state
    # the second moment and its previous estimate, each weighted by its precision
    size = float(state.counts.sum() / state.counted) if params.num_samples is None else float(params.num_samples)
    unit = 4 * params.radius**2 / max(size, 1.0)
    weight = (unit * stage.moment.noise_multiplier) ** -2
    total = state.moment_weight + weight
    moment = (state.moment * state.moment_weight + unit * noisy.second_moment * weight) / total
    return replace(state, moment=moment.clamp(min=1e-6 * params.radius**2), moment_weight=total)


def estimate_counts(state: RappState, num_samples: int | None, counts_are_private: bool) -> Float[Tensor, " p"]:
    """The number of samples of each row: exact where counts are public, else shrunk towards their mean.

    `num_samples` is the size of the dataset, where that is public. A count below its own noise is replaced
    by that noise: a sum divided by less would be noise alone.
    """
    counts = state.counts / state.counted
    if not counts_are_private:
        return counts.clamp(min=1)
    noise = 1 / state.counted
    total = counts.sum() if num_samples is None else torch.tensor(float(num_samples))
    mean = total.clamp(min=1) / len(counts)
    spread = ((counts - mean).square().mean() - noise).clamp(min=0)
    return (mean + spread / (spread + noise) * (counts - mean)).clamp(min=max(1.0, float(noise.sqrt())))


def centres_from_broadcast(
    broadcast: Prototypes | None, projection: ReleaseProjection, classes: int, radius: float
) -> Float[Tensor, "c r"]:
    """The last broadcast as one centre a class; the origin where there is no usable broadcast.

    The server may have chosen it maliciously. It is public either way, so only its length is limited.
    """
    centres = torch.zeros(classes, projection.dims[1], dtype=torch.float64)
    if broadcast is None or broadcast.vectors.ndim != 2 or broadcast.vectors.shape[1] != projection.dims[0]:
        return centres
    valid = broadcast.vectors.isfinite().all(dim=1) & (broadcast.labels >= 0) & (broadcast.labels < classes)
    if not bool(valid.any()):
        return centres
    projected = projection.project(broadcast.vectors[valid].double()).double()
    means = ClassMeans()(projected, broadcast.labels[valid])
    centres += means.vectors.mean(dim=0)  # a class without a prototype is most likely among the others
    centres[means.labels] = means.vectors
    return base.clip(torch.nan_to_num(centres), _MAX_DISTANCE * radius)


def reseed_empty(
    centres: Float[Tensor, "p r"], counts: Float[Tensor, " p"], per_class: int, radius: float
) -> Float[Tensor, "p r"]:
    """Move a centre that is empty (by the noisy counts) to the fullest one of its class.

    The two are placed a quarter of a radius to either side, so that the next stage can divide them.
    """
    if per_class == 1:
        return centres
    offsets = 0.25 * radius * _directions(per_class, centres.shape[1])
    rows, sizes = centres.reshape(-1, per_class, centres.shape[1]).clone(), counts.reshape(-1, per_class)
    for row, size in zip(rows, sizes, strict=True):
        fullest, emptiest = int(size.argmax()), int(size.argmin())
        if size[emptiest] < _EMPTY_RATIO * size.mean():
            row[emptiest] = row[fullest] + offsets[emptiest]
            row[fullest] = row[fullest] - offsets[emptiest]
    return rows.flatten(0, 1)


def _directions(count: int, dim: int) -> Float[Tensor, "k r"]:
    """Unit vectors along cosine waves, in pairs of opposite ones."""
    positions = torch.arange(dim, dtype=torch.float64) + 0.5
    waves = [torch.cos(math.pi * (number // 2 + 1) * positions / dim) for number in range(count)]
    signs = [1 - 2 * (number % 2) for number in range(count)]
    return torch.stack([s * w / w.norm().clamp(min=1e-9) for s, w in zip(signs, waves, strict=True)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Rapp(base.GaussianMechanism):
    """Sums of residuals around already released centres, in stages whose releases are added up.

    Args:
        clip_norm: R of the first stage, about the norm of a feature; later stages estimate their own.
        noise_multiplier: the noise of all stages together, relative to the sensitivity.
        classes: the public number of classes.
        stages: how the budget is split over stages and releases.
        projection: the public projection into the space of the release.
        per_class: the number of centres of each class.
        adjacency: the neighbouring relation of the guarantee.

    Guarantee: each stage is two Gaussian events under `adjacency`; over all stages they are one Gaussian of
    `noise_multiplier` (docs/privacy.md, section 13), for centres chosen by anybody, as long as the encoder
    is not trained on the data. Every row of the public list is released, with noise that depends on no
    count; where a neighbour could change a count, the count is noisy too. It makes its own sums: the
    context's summariser is not used.

    >>> mechanism = Rapp.calibrated(Budget(1.0, 1e-5), 5, clip_norm=2.0, classes=3, dim=4)
    >>> release = mechanism.release(torch.ones(6, 4), torch.arange(6) % 2)
    >>> upload = release.charge_to(privacy.Ledger(client="a", budget=Budget(1.0, 1e-5)), round=1)
    >>> upload.vectors.shape, len(release.receipt.events)
    (torch.Size([3, 4]), 2)
    """

    traits: ClassVar[base.MechanismTraits] = base.MechanismTraits(is_exact=True, is_accumulating=True)

    classes: int
    stages: StageSchedule
    projection: ReleaseProjection
    per_class: int = 1

    def __post_init__(self) -> None:
        base.GaussianMechanism.__post_init__(self)
        at_least(1, classes=self.classes, per_class=self.per_class)

    @classmethod
    def calibrated(
        cls,
        budget: Budget,
        rounds: int,
        *,
        clip_norm: float,
        classes: int,
        projection: ReleaseProjection | None = None,
        dim: int | None = None,
        samples_per_class: int = 0,
        shares: tuple[float, ...] = DEFAULT_STAGE_SHARES,
        per_class: int = 1,
        accountant: str = "exact",
        adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL,
    ) -> Self:
        """The mechanism with the least noise at which all stages, in `rounds` releases, stay in the budget.

        Args:
            budget, rounds, accountant: as `Igpp.calibrated`.
            clip_norm, classes, per_class, adjacency: as above.
            projection: as above, or None with `dim`.
            dim: the dimension of the features, instead of a projection. The release has `default_release_dim`
                dimensions of them, in a subspace that is the same for all clients.
            samples_per_class: with `dim`, the declared number of samples of one class at one client, a public number;
                0 releases all dimensions.
            shares: the relative share of each stage.

        Returns:
            The calibrated mechanism.

        Raises:
            InvalidInput: no noise satisfies the budget, or an argument is out of range.
        """
        if projection is not None and dim is not None and dim != projection.dims[0]:
            raise InvalidInput(f"the projection is for {projection.dims[0]} dimensions, dim is {dim}; leave one out")
        if projection is None:
            if dim is None:
                raise InvalidInput("expected dim, the dimension of the features, or a projection; got neither")
            at_least(1, dim=dim)
            kept = default_release_dim(dim, budget, samples_per_class)
            projection = ReleaseProjection.random(dim, kept, torch.Generator().manual_seed(0))
        return cls(
            clip_norm=clip_norm,
            noise_multiplier=privacy.get_accountant(accountant).noise_multiplier(budget, 1),
            classes=classes,
            stages=StageSchedule(releases=rounds, shares=shares),
            projection=projection,
            per_class=per_class,
            adjacency=adjacency,
        )

    @classmethod
    def from_config(cls, config: base.MechanismConfig) -> Self:
        """As `Mechanism.from_config`; options `stages`, `per_class` and `release_dim`.

        The projection is drawn from the public stream of the configuration: all clients must share it. A
        `release_dim` of 0 means `default_release_dim`.
        """
        stages = config.options.get("stages")
        release_dim = config.options.get("release_dim") or default_release_dim(
            config.dim, config.budget, config.samples_per_class
        )
        return cls.calibrated(
            config.budget,
            config.releases,
            clip_norm=config.clip_norm,
            classes=config.classes,
            projection=ReleaseProjection.random(config.dim, release_dim, config.rng),
            shares=DEFAULT_STAGE_SHARES if stages is None else parse_shares(stages),
            per_class=config.options.get("per_class", 1),
            accountant=config.accountant,
            adjacency=config.adjacency,
        )

    @classmethod
    def calibration(cls, config: base.MechanismConfig) -> base.Calibration:
        """As `DescribesCalibration.calibration`; the projection does not matter to it."""
        multiplier = privacy.get_accountant(config.accountant).noise_multiplier(config.budget, 1)
        schedule = StageSchedule(releases=config.releases)
        stages = [schedule.stage(number, multiplier) for number in range(schedule.count)]
        return base.Calibration(
            noise_multiplier=multiplier,
            events=tuple(event for stage in stages for event in stage.events),
            reading=f"{schedule.count} stages, which together are one release of sums at this multiplier; "
            "each uses the centres that the stages before it have estimated, so its radius shrinks",
            relative_energy=1.0,
            details={"stages": [stage.sums.noise_multiplier for stage in stages]},
        )

    def receipt_for(self, context: ReleaseContext = ReleaseContext()) -> privacy.Receipt:
        """As `Mechanism.receipt_for`: the events of the next stages; how many stages are done is public."""
        stages = self._next_stages(self._load_state(context))
        events = tuple(event for stage in stages for event in stage.events)
        terms = base.guarantee_terms(
            self.adjacency,
            context.encoder,
            context.noise,
            guarantee.SensitivityBasis.PROVED,
            self._counts_are_private,
            self.traits.is_exact,
        )
        return privacy.Receipt(events=events, terms=terms)

    def release(self, vectors: Array, labels: Array, context: ReleaseContext = ReleaseContext()) -> Release:
        """As `Mechanism.release`: run the next stages, and release the estimate of all stages so far."""
        classes = self.classes if context.classes is None else min(self.classes, context.classes)
        features = base.validate_features(vectors, labels, replace(context, classes=classes))
        dim = features.vectors.shape[1]
        if dim != self.projection.dims[0]:
            raise InvalidInput(
                f"{context.client}: expected features of {self.projection.dims[0]} dimensions, got {dim}; "
                "make the projection for these features"
            )
        features = Features(self.projection.project(features.vectors), features.labels)
        # the size of the dataset is public wherever no neighbour can change it
        num_samples = None if self.adjacency is Adjacency.ADD_REMOVE else len(features.labels)
        state = self._load_state(context)
        for stage in self._next_stages(state):
            state, params = self._prepare_stage(state, num_samples, context)
            state = run_stage(features, state, params, stage, context.noise)
        counts = estimate_counts(state, num_samples, self._counts_are_private)
        prototypes = Prototypes(  # one row for each centre of the public list, with its noise
            base.to_finite_float32(self.projection.lift(state.estimate(counts))),
            torch.arange(self.classes).repeat_interleave(self.per_class),
            base.to_finite_float32(state.variances(counts) * self.projection.mean_variance),
        )
        # the noise of a typical row relative to a clean prototype, and the last radius; private
        stds, clean = state.variances(counts).sqrt(), ClassMeans()(features.vectors, features.labels)
        noise = stds.reshape(-1, self.per_class).mean(dim=1)[clean.labels] * math.sqrt(state.sums.shape[1])
        norms = clean.vectors.norm(dim=1)
        ratio = noise[norms > 0] / norms[norms > 0]
        diagnostics = {
            "sigma": float(stds.median()),
            "noise_to_signal": float(ratio.median()) if len(ratio) else 0.0,
            "energy_ratio": 1.0,  # all coordinates of a row have the same noise
            "radius": math.sqrt(float(state.moment)),
            "stage": float(state.stage),
        }
        return Release(prototypes, self.receipt_for(context), diagnostics, state.to_dict(), type(self).__name__)

    def _load_state(self, context: ReleaseContext) -> RappState:
        if context.state:
            return RappState.from_dict(context.state)
        return RappState.initial(self.classes * self.per_class, self.projection.dims[1], self._first_radius)

    def _next_stages(self, state: RappState) -> list[Stage]:
        numbers = self.stages.stages_in_release(state.stage)
        return [self.stages.stage(number, self.noise_multiplier) for number in numbers]

    def _prepare_stage(
        self, state: RappState, num_samples: int | None, context: ReleaseContext
    ) -> tuple[RappState, StageParams]:
        """Centres and radius of the next stage, from public numbers only."""
        radius = self._first_radius
        broadcast = centres_from_broadcast(context.last_broadcast, self.projection, self.classes, self.clip_norm)
        centres = broadcast
        if state.stage:
            counts = estimate_counts(state, num_samples, self._counts_are_private)
            # the broadcast plus the client's own released deviation from it, shrunk by its noise
            prior = broadcast.repeat_interleave(self.per_class, dim=0)
            deviation = state.estimate(counts) - prior
            centres = prior + shrinkage.blup(deviation[None], state.variances(counts)[None]).per_client[0]
            centres = reseed_empty(centres, counts, self.per_class, radius)
            # distances are shorter from the new centres; a public range keeps the radius of every stage usable
            explained = counts @ (centres - state.centres).square().sum(dim=1) / counts.sum()
            most = (_MAX_DISTANCE * radius) ** 2
            least = min(max(_MIN_MOMENT_RATIO * float(state.moment), _MIN_MOMENT * radius**2), most)
            moment = torch.nan_to_num(state.moment - explained, nan=most).clamp(least, most)
            state = replace(state, moment=moment)
        elif self.per_class > 1:  # half a radius from the class's centre along cosine waves, to start k-means
            offsets = 0.5 * radius * _directions(self.per_class, broadcast.shape[1])
            centres = (broadcast[:, None] + offsets).flatten(0, 1)
        params = StageParams(
            centres=centres,
            radius=math.sqrt(float(state.moment)),
            per_class=self.per_class,
            adjacency=effective_adjacency(self.adjacency, self.per_class),
            num_samples=num_samples,
        )
        return state, params

    @property
    def _first_radius(self) -> float:
        """The radius of the first stage: the declared clip norm, shortened by the projection."""
        return self.clip_norm * self.projection.norm_ratio

    @property
    def _counts_are_private(self) -> bool:
        return ClassSums(classes=1).counts_are_private(effective_adjacency(self.adjacency, self.per_class))
