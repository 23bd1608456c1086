"""The two baselines: no privacy, and Isotropic Gaussian Prototype Perturbation (IGPP, Sec. 4.1)."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from vpdr import privacy
from vpdr.mechanisms import base
from vpdr.mechanisms.base import Array, ReleaseContext
from vpdr.privacy import Adjacency, Budget, GaussianEvent
from vpdr.types import MechanismState, Prototypes, Release
from vpdr.validation import InvalidInput


@dataclass(frozen=True, kw_only=True, slots=True)
class NoPrivacy:
    """Neither clipping nor noise: the upper bound of every comparison.

    Args:
        adjacency: the relation under which the receipts are recorded.

    Guarantee: none. Each release is a `NotPrivateEvent`, which a ledger with a budget refuses.

    >>> release = NoPrivacy().release(torch.ones(4, 2), torch.tensor([0, 0, 1, 1]))
    >>> upload = release.charge_to(privacy.Ledger(client="a", budget=None), round=1)
    >>> upload.vectors.tolist(), str(release.receipt.level)
    ([[1.0, 1.0], [1.0, 1.0]], 'not private')
    """

    traits: ClassVar[base.MechanismTraits] = base.MechanismTraits(is_private=False)

    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", privacy.guarantee.parse_enum(Adjacency, self.adjacency))

    @classmethod
    def from_config(cls, config: base.MechanismConfig) -> Self:
        """As `Mechanism.from_config`; only the adjacency is read."""
        return cls(adjacency=config.adjacency)

    def receipt_for(self, context: ReleaseContext = ReleaseContext()) -> privacy.Receipt:
        """As `Mechanism.receipt_for`: one `NotPrivateEvent`."""
        return privacy.Receipt(events=(privacy.NotPrivateEvent(),), terms=base.release_terms(self.adjacency, context))

    def release(self, vectors: Array, labels: Array, context: ReleaseContext = ReleaseContext()) -> Release:
        """As `Mechanism.release`: summarise, and nothing else."""
        features = base.validate_features(vectors, labels, context)
        summary = context.summariser(features.vectors, features.labels)
        vectors = context.summariser.postprocess(summary.vectors, summary.sizes.double())
        diagnostics = {"sigma": 0.0, "noise_to_signal": 0.0, "energy_ratio": 0.0}
        prototypes = Prototypes(base.to_finite_float32(vectors), summary.labels)
        return Release(prototypes, self.receipt_for(context), diagnostics, mechanism=type(self).__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Igpp(base.GaussianMechanism):
    """Isotropic Gaussian Prototype Perturbation: clip, summarise, add equal noise to every coordinate.

    Args:
        clip_norm: R, the l2 norm to which every feature is clipped.
        noise_multiplier: σ_iso, the noise of one release relative to the sensitivity.
        adjacency: the neighbouring relation of the guarantee.
        accumulate: send the mean of all releases so far instead of the last one. Post-processing, but
            useful only while the encoder stays the same.

    Guarantee: one `release` is one Gaussian event of `noise_multiplier` under `adjacency`, as long as the
    encoder is not trained on the data and the summariser's sensitivity is a bound. Averaging releases that
    were paid for costs nothing more.

    >>> mechanism = Igpp.calibrated(Budget(1.0, 1e-5), 20, clip_norm=5.0)
    >>> round(mechanism.noise_multiplier, 2)
    16.68
    >>> release = mechanism.release(torch.ones(4, 2), torch.tensor([0, 0, 1, 1]))
    >>> release.charge_to(privacy.Ledger(client="a", budget=Budget(1.0, 1e-5)), round=1).vectors.shape
    torch.Size([2, 2])
    """

    traits: ClassVar[base.MechanismTraits] = base.MechanismTraits(is_exact=True)

    accumulate: bool = False

    @classmethod
    def calibrated(
        cls,
        budget: Budget,
        rounds: int,
        *,
        clip_norm: float,
        accountant: str = "exact",
        adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL,
        accumulate: bool = False,
    ) -> Self:
        """The mechanism with the least noise at which `rounds` releases stay within the budget.

        Args:
            budget: what one client may spend in all.
            rounds: the number of releases.
            clip_norm, adjacency, accumulate: as above.
            accountant: the name of the accountant, one of `ACCOUNTANTS`.

        Returns:
            The calibrated mechanism.

        Raises:
            InvalidInput: no noise satisfies the budget, or an argument is out of range.
        """
        multiplier = privacy.get_accountant(accountant).noise_multiplier(budget, rounds)
        return cls(clip_norm=clip_norm, noise_multiplier=multiplier, adjacency=adjacency, accumulate=accumulate)

    @classmethod
    def from_config(cls, config: base.MechanismConfig) -> Self:
        """As `Mechanism.from_config`; option `accumulate`."""
        return cls.calibrated(
            config.budget,
            config.releases,
            clip_norm=config.clip_norm,
            accountant=config.accountant,
            adjacency=config.adjacency,
            accumulate=config.options.get("accumulate", False),
        )

    @classmethod
    def calibration(cls, config: base.MechanismConfig) -> base.Calibration:
        """As `DescribesCalibration.calibration`."""
        multiplier = cls.from_config(config).noise_multiplier
        return base.Calibration(
            noise_multiplier=multiplier,
            events=(GaussianEvent(multiplier),) * config.releases,
            reading="all coordinates get the same noise; nothing is selected",
            relative_energy=1.0,
            details={"group_noise": [1.0, 1.0], "group_multipliers": [multiplier, multiplier]},
        )

    def receipt_for(self, context: ReleaseContext = ReleaseContext()) -> privacy.Receipt:
        """As `Mechanism.receipt_for`: one Gaussian event."""
        events = (GaussianEvent(self.noise_multiplier),)
        return privacy.Receipt(
            events=events, terms=base.release_terms(self.adjacency, context, is_exact=self.traits.is_exact)
        )

    def release(self, vectors: Array, labels: Array, context: ReleaseContext = ReleaseContext()) -> Release:
        """As `Mechanism.release`: clip, summarise, add noise."""
        features = base.validate_features(vectors, labels, context)
        coord_scale = torch.ones(features.vectors.shape[1], dtype=torch.float64)
        grid = self.make_grid(coord_scale)
        clipped = grid.clip(features.vectors, self.clip_norm)
        row_sums = base.RowSums.of(context.summariser, clipped, features.labels, grid)
        noisy = self.add_noise(row_sums, context, coord_scale)
        state: MechanismState = {}
        if self.accumulate:  # only the noise is averaged out, so the encoder must be the same at every release
            rows, sizes, count, previous = noisy.rows, noisy.sizes, 1, context.state
            if previous:
                if not torch.equal(previous["labels"], row_sums.labels):
                    raise InvalidInput(
                        f"{context.client}: releases can be averaged only if all have the same rows; "
                        "use class means or class sums"
                    )
                rows, sizes, count = rows + previous["rows"], sizes + previous["sizes"], 1 + int(previous["count"])
            state = {"rows": rows, "sizes": sizes, "count": torch.tensor(count), "labels": row_sums.labels}
            noisy = base.NoisyRows(rows / count, sizes / count, noisy.stds / count**0.5)
        prototypes = base.postprocess_rows(noisy, row_sums.labels, coord_scale, context.summariser)
        diagnostics = {
            "sigma": float(noisy.stds.median()) if len(noisy.stds) else 0.0,
            "noise_to_signal": base.noise_to_signal(row_sums, context.summariser, noisy, coord_scale),
            "energy_ratio": 1.0,
        }
        return Release(prototypes, self.receipt_for(context), diagnostics, state, type(self).__name__)
