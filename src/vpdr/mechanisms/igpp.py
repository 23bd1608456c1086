"""Isotropic Gaussian Prototype Perturbation, the baseline of the paper (Sec. 4.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from vpdr.mechanisms.accumulate import averaged
from vpdr.mechanisms.admission import admit
from vpdr.mechanisms.base import Array, Facts, Occasion
from vpdr.mechanisms.clipping import check_clip_norm, clip
from vpdr.mechanisms.perturb import Scale, finished, noise_to_signal, noisy_rows, terms
from vpdr.mechanisms.statement import release_bound
from vpdr.privacy.accountants import accountant_named
from vpdr.privacy.budget import Budget
from vpdr.privacy.events import Gaussian
from vpdr.privacy.terms import Adjacency, Receipt, member
from vpdr.prototypes import Summariser
from vpdr.types import Memory, Release


@dataclass(frozen=True, kw_only=True, slots=True)
class Igpp:
    """Clip every feature, summarise, and add the same noise to every coordinate.

    Guarantee: one `release` is one Gaussian event of `noise_multiplier` under `adjacency`, as long as the
    encoder is not trained on the data and the summariser's sensitivity is a bound. Averaging releases that
    were paid for costs nothing more.
    """

    facts: ClassVar[Facts] = Facts()

    clip_norm: float  # R
    noise_multiplier: float  # σ_iso
    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL
    accumulate: bool = False  # whether the mean of all releases so far is sent: post-processing

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)
        Gaussian(self.noise_multiplier)
        object.__setattr__(self, "adjacency", member(Adjacency, self.adjacency))

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
    ) -> "Igpp":
        """The least noise with which `rounds` releases stay within the budget."""
        multiplier = accountant_named(accountant).multiplier(budget, rounds)
        return cls(
            clip_norm=clip_norm, noise_multiplier=multiplier, adjacency=adjacency, accumulate=accumulate
        )

    def planned(self, occasion: Occasion = Occasion()) -> Receipt:
        """One Gaussian event, whatever the data are."""
        return Receipt(events=(Gaussian(self.noise_multiplier),), terms=terms(self.adjacency, occasion))

    def release(self, vectors: Array, labels: Array, occasion: Occasion = Occasion()) -> Release:
        """Clip, summarise, add noise."""
        features = admit(vectors, labels, occasion)
        reach = torch.ones(features.vectors.shape[1], dtype=torch.float64)
        summary = occasion.summarise(clip(features.vectors, self.clip_norm), features.labels)
        scale = Scale(
            multiplier=self.noise_multiplier, clip_norm=self.clip_norm, adjacency=self.adjacency, reach=reach
        )
        told = noisy_rows(summary, occasion.summarise, scale, occasion.noise)
        memory: Memory = {}
        if self.accumulate:
            told, memory = averaged(told, summary, occasion)
        noised = finished(told, summary, scale, occasion)
        diagnostics = {
            "sigma": float(noised.stds.median()) if len(noised.stds) else 0.0,
            "noise_to_signal": noise_to_signal(summary, noised, reach),
            "energy_ratio": 1.0,
        }
        return Release(noised.prototypes, self.planned(occasion), diagnostics, memory)

    def bounds(self, adjacency: Adjacency, summarise: Summariser) -> Mapping[str, str]:
        """The release is the only thing computed from the data."""
        return {"release": release_bound(adjacency, summarise)}
