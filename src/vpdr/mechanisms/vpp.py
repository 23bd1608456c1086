"""Variance-adaptive Prototype Perturbation (VPP, Sec. 4.2): private selection of coordinates, then two noise levels."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch

from vpdr import privacy
from vpdr.mechanisms import base
from vpdr.mechanisms.base import Array, ReleaseContext
from vpdr.privacy import Adjacency, Budget, GaussianEvent, accountants
from vpdr.prototypes import ClassMeans
from vpdr.rng import MAX_SCALE, Grid
from vpdr.types import Bool, Features, Float, MechanismState, Real, Release, Tensor
from vpdr.validation import InvalidInput

_MIN_FLOOR = 1e-12
_FLOOR_SHARE = 1e-3


def anova_scores(features: Features) -> Float[Tensor, " d"]:
    """Between-class over within-class variance of every coordinate (Eq. 7 and 8).

    A client with one class, or with no more samples than classes, has no such ratio: all scores are 0.
    ζ is a thousandth of the median within-class variance; it may depend on the data because the scores are
    clipped to a fixed range before they are used.
    """
    vectors = features.vectors
    means = ClassMeans()(vectors, features.labels)
    classes, samples = len(means.labels), len(vectors)
    if classes < 2 or samples <= classes:
        return torch.zeros(vectors.shape[1], dtype=vectors.dtype)
    own = means.vectors[torch.searchsorted(means.labels, features.labels)]
    within = own.sub_(vectors).square_().sum(0) / (samples - classes)  # in place: memory is the cost here
    sizes = means.sizes.to(vectors)
    grand = sizes @ means.vectors / samples
    between = sizes @ (means.vectors - grand).square() / (classes - 1)
    floor = (_FLOOR_SHARE * within.median()).clamp(min=_MIN_FLOOR)
    return torch.nan_to_num(between / (within + floor), nan=0.0)  # where both overflow the score is 0


def clamp_scores(scores: Float[Tensor, " d"], cap: float) -> Float[Tensor, " d"]:
    """Scores between 0 and the cap, whatever the input: the guarantee rests on this range.

    Samples can be made so large that a score overflows to NaN, which no clamp moves and every sort puts
    first; it counts as 0.
    """
    return torch.nan_to_num(scores, nan=0.0, posinf=cap, neginf=0.0).clamp(0, cap)


def top_k_mask(scores: Real[Tensor, " d"], k: int) -> Bool[Tensor, " d"]:
    """The k largest scores as a mask; ties go to the lower index."""
    order = scores.sort(descending=True, stable=True).indices[:k]
    return torch.zeros(len(scores), dtype=torch.bool).index_fill_(0, order, True)


@dataclass(frozen=True, slots=True)
class SelectedCoordinates:
    """The selected coordinates, and the state to keep for the next release."""

    mask: Bool[Tensor, " d"]
    state: MechanismState = field(default_factory=dict)


class Selection:
    """Selects k coordinates by their scores; this base class adds no noise to them and costs nothing.

    Guarantee: the mask depends on the scores only through the events of `cost`.
    """

    __slots__ = ()

    scale = 0.0  # λ of the noise on each score
    is_private = True  # whether it has a finite privacy cost
    description = ""  # of how precise a selection without noise can be

    def cost(self, context: ReleaseContext) -> tuple[privacy.Event, ...]:
        """What `choose` reveals in this context; it does not depend on the scores."""
        return ()

    def choose(self, scores: Float[Tensor, " d"], k: int, context: ReleaseContext) -> SelectedCoordinates:
        """The selected coordinates of this release."""
        raise NotImplementedError

    @property
    def pure_events(self) -> privacy.accountants.RepeatedEvent | None:
        """The Laplace noise of the selections of all rounds; None where there is none."""
        return None

    @property
    def events(self) -> tuple[privacy.Event, ...]:
        """The events of the selections of all rounds."""
        pure = self.pure_events
        return (pure.event,) * pure.times if pure else self.cost(ReleaseContext())


@dataclass(frozen=True, kw_only=True, slots=True)
class LaplaceSelection(Selection):
    """The paper's selection: the largest clipped scores after Laplace noise on each (Qiao et al., 2021).

    Guarantee: (2 d_A H/λ, 0)-DP between any two datasets, neighbours or not, because the whole range H of
    a clipped score is taken as its sensitivity. For the same reason it is close to random: a truly large
    score is at most e^ε₀ times likelier to be kept than any other (docs/privacy.md).

    Proof: clipped scores are whole numbers of steps from 0 to h, the noise is discrete Laplace of scale t with
    h/t ≤ H/λ. Let A be selected under scores y and noise b. Add 2h to the noise of A: under any other scores y',
    a score in A with its noise is then at least h larger than under y, and one outside of A at most h larger. So A is
    selected under y' as well, and as no comparison is turned round, neither is a tie, which goes to the lower index.
    The shift of d_A variables by 2h changes the probability of the noise by at most e^(2 d_A h/t). ∎
    """

    only_first_round: ClassVar[bool] = False

    k: int  # d_A
    cap: float  # H
    scale: float  # λ
    rounds: int  # in how many rounds it selects

    @property
    def event(self) -> accountants.PureEvent:
        """ε of one selection: 2 d_A H / λ (Theorem 4.1)."""
        return accountants.PureEvent(2 * self.k * self.cap / self.scale)

    @property
    def pure_events(self) -> privacy.accountants.RepeatedEvent:
        return privacy.accountants.RepeatedEvent(self.event, self.rounds)

    def cost(self, context: ReleaseContext) -> tuple[privacy.Event, ...]:
        return (self.event,)

    def choose(self, scores: Float[Tensor, " d"], k: int, context: ReleaseContext) -> SelectedCoordinates:
        """Clip the scores to whole steps, add noise, keep the k largest."""
        if k != self.k:
            raise InvalidInput(f"the selection is calibrated for {self.k} coordinates, asked for {k}")
        grid = Grid.for_noise(self.cap, self.scale)
        whole = (clamp_scores(scores, self.cap) / grid.step).floor().to(torch.int64)
        noise = context.noise.discrete_laplace(grid.noise_scale(torch.full_like(scores, self.scale)))
        return SelectedCoordinates(top_k_mask(whole + noise, k))


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstRoundSelection(LaplaceSelection):
    """The Laplace selection, made once at the first release with the whole share, and then kept.

    Guarantee: as `LaplaceSelection`, charged once; a client that lost its state selects and pays again.
    """

    only_first_round: ClassVar[bool] = True

    def cost(self, context: ReleaseContext) -> tuple[privacy.Event, ...]:
        """Nothing where the state holds a selection."""
        return () if "focus" in context.state else (self.event,)

    def choose(self, scores: Float[Tensor, " d"], k: int, context: ReleaseContext) -> SelectedCoordinates:
        """The selection of the state, or a first one."""
        mask = context.state.get("focus")
        if mask is None:
            mask = LaplaceSelection.choose(self, scores, k, context).mask
        elif mask.shape != scores.shape:
            raise InvalidInput(
                f"{context.client}: the remembered selection is for {len(mask)} dimensions, "
                f"the features have {len(scores)}"
            )
        return SelectedCoordinates(mask, {"focus": mask})


class RandomSelection(Selection):
    """A uniformly random subset: the control. Guarantee: independent of the data, costs nothing."""

    description = "a coin keeps {chance:.4f} of the right coordinates; the selection costs nothing"

    def choose(self, scores: Float[Tensor, " d"], k: int, context: ReleaseContext) -> SelectedCoordinates:
        """Rank fresh Gaussian draws, so finely rounded that no two are equal.

        Laplace draws would not do: with the same seed their ranking would repeat the choice of
        `LaplaceSelection`, and the control would look too much like it.
        """
        scales = torch.full((len(scores),), MAX_SCALE)
        return SelectedCoordinates(top_k_mask(context.noise.rounded_gaussian(scales), k))


class PublicSelection(RandomSelection):
    """The coordinates in which the classes of the last broadcast differ most.

    Guarantee: post-processing of what the server has already published, costs nothing.
    """

    description = "the selection uses the last broadcast and costs nothing; its first is a coin ({chance:.4f})"

    def choose(self, scores: Float[Tensor, " d"], k: int, context: ReleaseContext) -> SelectedCoordinates:
        """By between-class variance of the broadcast; random before the first broadcast."""
        if context.last_broadcast is None:
            return RandomSelection.choose(self, scores, k, context)
        means = ClassMeans()(context.last_broadcast.vectors.double(), context.last_broadcast.labels).vectors
        variance = means.var(dim=0, unbiased=False)
        if variance.shape != scores.shape:
            raise InvalidInput(
                f"{context.client}: the broadcast has {len(variance)} dimensions, the features {len(scores)}"
            )
        return SelectedCoordinates(top_k_mask(variance, k))


class OracleSelection(Selection):
    """The truly largest scores: an upper bound for diagnosis. Guarantee: none, not private."""

    is_private = False
    description = "the selection looks at the data: not private, for diagnosis only (a coin keeps {chance:.4f})"

    def choose(self, scores: Float[Tensor, " d"], k: int, context: ReleaseContext) -> SelectedCoordinates:
        """The k largest scores, without noise."""
        return SelectedCoordinates(top_k_mask(scores, k))

    def cost(self, context: ReleaseContext) -> tuple[privacy.Event, ...]:
        return (privacy.NotPrivateEvent(),)


_NOISY: dict[str, type[LaplaceSelection]] = {"laplace": LaplaceSelection, "once": FirstRoundSelection}
_NOISELESS: dict[str, type[Selection]] = {
    "random": RandomSelection,
    "public": PublicSelection,
    "oracle": OracleSelection,
}
SELECTIONS = (*_NOISY, *_NOISELESS)


@dataclass(frozen=True, kw_only=True, slots=True)
class SelectionConfig:
    """The settings of VPP's selection; the defaults are the paper's.

    Args:
        keep: ρ, the share of coordinates that are selected, in (0, 0.5].
        cap: H, the value at which scores are clipped.
        share: r, the part of ε for the selection; unused by selections that cost nothing.
        selection: the kind of selection, one of `SELECTIONS`.

    Raises:
        InvalidInput: a setting is out of range.

    Guarantee: the Laplace selections of all rounds together spend `share` of the budget's ε.

    >>> SelectionConfig(keep=0.1).calibrate(Budget(1.0, 1e-5), rounds=20, k=52).scale
    2080.0
    """

    keep: float = 0.2
    cap: float = 0.1
    share: float = 0.1
    selection: str = "laplace"

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 0.5:
            raise InvalidInput(
                f"keep must lie in (0, 0.5], got {self.keep:g}: "
                "above one half the selected coordinates would get more noise"
            )
        if not 0 < self.cap < math.inf:
            raise InvalidInput(f"cap must be a positive number, got {self.cap:g}")
        if self.selection not in SELECTIONS:
            raise InvalidInput(f"unknown selection {self.selection!r}; choose one of {', '.join(SELECTIONS)}")
        if self.selection in _NOISY and not 0 < self.share < 1:
            raise InvalidInput(
                f"share must lie in (0, 1), got {self.share:g}; selection 'random' is the one without a share"
            )

    @property
    def is_private(self) -> bool:
        """Whether the selection has a finite privacy cost."""
        return self.selection in _NOISY or _NOISELESS[self.selection].is_private

    def calibrate(self, budget: Budget, rounds: int, k: int) -> Selection:
        """The selection with its Laplace scale λ = 2 d_A H T / ε₁ (Eq. 9)."""
        if self.selection in _NOISELESS:
            return _NOISELESS[self.selection]()
        privacy.accountants.check_rounds(rounds)
        kind, (selection_budget, _) = _NOISY[self.selection], budget.split(self.share)
        times = 1 if kind.only_first_round else rounds
        scale = 2 * k * self.cap * times / selection_budget.epsilon
        return kind(k=k, cap=self.cap, scale=scale, rounds=times)


@dataclass(frozen=True, slots=True)
class NoiseAllocation:
    """The two groups of coordinates: their sizes, clip norms and noise.

    >>> NoiseAllocation.from_fraction(512, 0.2).num_selected
    103
    """

    dim: int  # d, of the features
    num_selected: int  # d_A

    @classmethod
    def from_fraction(cls, dim: int, keep: float) -> "NoiseAllocation":
        """⌈ρd⌉ selected coordinates, and at least one coordinate in each group."""
        if dim < 2:
            raise InvalidInput(f"two groups need at least 2 dimensions, got {dim}")
        count = math.ceil(keep * dim - 1e-9)  # 0.07 * 100 is 7.000000000000001
        return cls(dim, min(max(count, 1), dim - 1))

    @property
    def radii(self) -> tuple[float, float]:
        """κ_A, κ_B: each group's share of the clip norm; their squares add up to one (Eq. 10)."""
        return math.sqrt(self.num_selected / self.dim), math.sqrt(1 - self.num_selected / self.dim)

    @property
    def weights(self) -> tuple[float, float]:
        """w_A, w_B: each group's share of the precision (Eq. 13)."""
        first, second = self.radii
        return second / (first + second), first / (first + second)

    @property
    def group_scales(self) -> tuple[float, float]:
        """Noise of each group relative to σ_ref·Δ: κ/√w."""
        return self.radii[0] / math.sqrt(self.weights[0]), self.radii[1] / math.sqrt(self.weights[1])

    @property
    def relative_energy(self) -> float:
        """Noise energy relative to isotropic noise of the same multiplier; 1 only at one half."""
        first, second = self.group_scales
        return (self.num_selected * first**2 + (self.dim - self.num_selected) * second**2) / self.dim

    def coord_scale(self, mask: Bool[Tensor, " d"]) -> Float[Tensor, " d"]:
        """The noise factor of every coordinate."""
        first, second = torch.tensor(self.group_scales, dtype=torch.float64)
        return torch.where(mask, first, second)


def max_selection_precision(allocation: NoiseAllocation, epsilon: float) -> float:
    """The best precision that a selection of this ε can have, whatever the data are.

    Exchanging a truly large score with any other changes the probability of being selected by at most e^ε,
    and all probabilities add up to the number of selected coordinates.
    """
    chance = allocation.num_selected / allocation.dim
    return chance / (chance + (1 - chance) * math.exp(-epsilon))


def describe_selection(selection: Selection, allocation: NoiseAllocation) -> str:
    """One line on how precise the selection can be."""
    chance = allocation.num_selected / allocation.dim
    if not isinstance(selection, LaplaceSelection):
        return selection.description.format(chance=chance)
    ceiling = max_selection_precision(allocation, selection.event.epsilon)
    return (
        f"signal to noise of the selection is {selection.cap / selection.scale:.2g}: "
        f"at most {ceiling:.4f} of the kept coordinates can be the right ones, a coin keeps {chance:.4f}"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Vpp(base.GaussianMechanism):
    """Select the coordinates that separate classes, and give them less of the noise.

    Args:
        clip_norm: R, the l2 norm to which every feature is clipped over both groups together.
        allocation: the sizes, clip norms and noise of the two groups of coordinates.
        selection: how coordinates are selected.
        score_cap: H, the value at which scores are clipped; used for diagnostics here.
        noise_multiplier: σ_ref, the noise of one release relative to the sensitivity.
        isotropic_multiplier: σ_iso of the same budget, for comparison only.
        adjacency: the neighbouring relation of the guarantee.

    Guarantee: one `release` costs what the selection costs (Theorem 4.1) and one Gaussian event of
    `noise_multiplier` (Theorem 4.2) under `adjacency`, under the same conditions as `Igpp`.

    >>> import torch
    >>> mechanism = Vpp.calibrated(Budget(1.0, 1e-5), 20, clip_norm=5.0, dim=4)
    >>> release = mechanism.release(torch.ones(6, 4), torch.arange(6) % 2)
    >>> upload = release.charge_to(privacy.Ledger(client="a", budget=Budget(1.0, 1e-5)), round=1)
    >>> upload.vectors.shape, [type(event).__name__ for event in release.receipt.events]
    (torch.Size([2, 4]), ['PureEvent', 'GaussianEvent'])
    """

    traits: ClassVar[base.MechanismTraits] = base.MechanismTraits(is_exact=True, has_selection=True)

    allocation: NoiseAllocation
    selection: Selection
    score_cap: float
    isotropic_multiplier: float

    @classmethod
    def calibrated(
        cls,
        budget: Budget,
        rounds: int,
        *,
        clip_norm: float,
        dim: int,
        selection: SelectionConfig | None = None,
        accountant: str = "exact",
        adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL,
    ) -> Self:
        """The mechanism with the least noise at which `rounds` releases stay within the budget.

        Args:
            budget, rounds, accountant: as `Igpp.calibrated`; there is a selection before each release.
            clip_norm, adjacency: as above.
            dim: the dimension of the features.
            selection: the settings of the selection; the paper's if None.

        Returns:
            The calibrated mechanism.

        Raises:
            InvalidInput: no noise satisfies the budget, or an argument is out of range.
        """
        config = selection or SelectionConfig()
        allocation = NoiseAllocation.from_fraction(dim, config.keep)
        calibrated = config.calibrate(budget, rounds, allocation.num_selected)
        by = privacy.get_accountant(accountant)
        return cls(
            clip_norm=clip_norm,
            allocation=allocation,
            selection=calibrated,
            score_cap=config.cap,
            noise_multiplier=by.noise_multiplier(budget, rounds, calibrated.pure_events),
            isotropic_multiplier=by.noise_multiplier(budget, rounds),
            adjacency=adjacency,
        )

    @classmethod
    def from_config(cls, config: base.MechanismConfig) -> Self:
        """As `Mechanism.from_config`; options `keep`, `cap`, `share` and `selection`."""
        pays = config.options.get("selection", SelectionConfig().selection) in _NOISY
        names = [name for name in SelectionConfig.__slots__ if name in config.options and (pays or name != "share")]
        settings = {name: config.options[name] for name in names}  # an option without effect is not read
        return cls.calibrated(
            config.budget,
            config.releases,
            clip_norm=config.clip_norm,
            dim=config.dim,
            selection=SelectionConfig(**settings),
            accountant=config.accountant,
            adjacency=config.adjacency,
        )

    @classmethod
    def calibration(cls, config: base.MechanismConfig) -> base.Calibration:
        """As `DescribesCalibration.calibration`."""
        mechanism = cls.from_config(config)
        groups, selection, multiplier = mechanism.allocation, mechanism.selection, mechanism.noise_multiplier
        return base.Calibration(
            noise_multiplier=multiplier,
            events=(*selection.events, *[GaussianEvent(multiplier)] * config.releases),
            reading=describe_selection(selection, groups),
            relative_energy=groups.relative_energy,
            details={
                "selection": config.options.get("selection", SelectionConfig().selection),
                "selection_scale": selection.scale or None,
                "kept": groups.num_selected,
                "group_noise": list(groups.group_scales),
                "group_multipliers": [multiplier / weight**0.5 for weight in groups.weights],
            },
        )

    def receipt_for(self, context: ReleaseContext = ReleaseContext()) -> privacy.Receipt:
        """As `Mechanism.receipt_for`: the selection, where it costs something, and one Gaussian event."""
        events = (*self.selection.cost(context), GaussianEvent(self.noise_multiplier))
        return privacy.Receipt(
            events=events, terms=base.release_terms(self.adjacency, context, is_exact=self.traits.is_exact)
        )

    def release(self, vectors: Array, labels: Array, context: ReleaseContext = ReleaseContext()) -> Release:
        """As `Mechanism.release`: select, clip both groups, summarise, add noise to both (Alg. 1, lines 5-10)."""
        features, groups = base.validate_features(vectors, labels, context), self.allocation
        if features.vectors.shape[1] != groups.dim:
            raise InvalidInput(
                f"{context.client}: expected features of {groups.dim} dimensions, "
                f"got {features.vectors.shape[1]}; calibrate with dim={features.vectors.shape[1]}"
            )
        scores = anova_scores(features)
        selected = self.selection.choose(scores, groups.num_selected, context)
        coord_scale = groups.coord_scale(selected.mask)
        grid = self.make_grid(coord_scale)
        clipped = torch.empty(features.vectors.shape, dtype=torch.int64)
        for group, radius in zip((selected.mask, ~selected.mask), groups.radii, strict=True):  # Eq. 11
            clipped[:, group] = grid.clip(features.vectors[:, group], self.clip_norm * radius)
        row_sums = base.RowSums.of(context.summariser, clipped, features.labels, grid)
        noisy = self.add_noise(row_sums, context, coord_scale)
        prototypes = base.postprocess_rows(noisy, row_sums.labels, coord_scale, context.summariser)
        truly_largest = top_k_mask(scores, groups.num_selected)
        sigma = float(noisy.stds.median()) if len(noisy.stds) else 0.0
        diagnostics = {
            "sigma": sigma,
            "sigma_focus": sigma * groups.group_scales[0],
            "sigma_rest": sigma * groups.group_scales[1],
            "energy_ratio": groups.relative_energy * (self.noise_multiplier / self.isotropic_multiplier) ** 2,
            "overlap": float((selected.mask & truly_largest).sum()) / groups.num_selected,
            "chance": groups.num_selected / groups.dim,  # the overlap of a random selection
            "selection_scale": self.selection.scale,
            "saturated": float((scores >= self.score_cap).double().mean()),
            "noise_to_signal": base.noise_to_signal(row_sums, context.summariser, noisy, coord_scale),
        }
        return Release(prototypes, self.receipt_for(context), diagnostics, selected.state, type(self).__name__)
