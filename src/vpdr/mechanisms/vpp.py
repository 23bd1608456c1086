"""Variance-adaptive Prototype Perturbation (Sec. 4.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.mechanisms.admission import admit
from vpdr.mechanisms.base import Array, Facts, Occasion
from vpdr.mechanisms.clipping import check_clip_norm, clip_groups
from vpdr.mechanisms.focus import Focus, Groups
from vpdr.mechanisms.perturb import Noised, Scale, noise_to_signal, perturb, terms
from vpdr.mechanisms.scores import anova_scores
from vpdr.mechanisms.selection import Selection, overlap
from vpdr.mechanisms.statement import release_bound, selection_bound
from vpdr.privacy.accountants import accountant_named
from vpdr.privacy.budget import Budget
from vpdr.privacy.events import Gaussian
from vpdr.privacy.terms import Adjacency, Receipt, member
from vpdr.prototypes import Summariser
from vpdr.types import Features, Release, Summary


@dataclass(frozen=True, kw_only=True, slots=True)
class Vpp:
    """Find the coordinates that tell classes apart, and give them less of the noise.

    Guarantee: one `release` is what the selection costs (Theorem 4.1) and one Gaussian event of
    `noise_multiplier` (Theorem 4.2) under `adjacency`, under the same conditions as `Igpp`.
    """

    facts: ClassVar[Facts] = Facts(selects=True)

    clip_norm: float  # R
    groups: Groups
    selection: Selection
    score_cap: float  # H
    noise_multiplier: float  # σ_ref
    isotropic_multiplier: float  # σ_iso of the same budget, for comparison only
    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)
        Gaussian(self.noise_multiplier)
        object.__setattr__(self, "adjacency", member(Adjacency, self.adjacency))

    @classmethod
    def calibrated(  # noqa: PLR0913 - what is calibrated (budget, rounds) is not what is configured
        cls,
        budget: Budget,
        rounds: int,
        *,
        clip_norm: float,
        dim: int,
        focus: Focus | None = None,
        accountant: str = "exact",
        adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL,
    ) -> "Vpp":
        """The least noise with which `rounds` selections and releases stay within the budget."""
        focus = focus or Focus()
        groups = Groups.of(dim, focus.keep)
        plan = focus.plan(budget, rounds, groups.kept)
        by = accountant_named(accountant)
        return cls(
            clip_norm=clip_norm,
            groups=groups,
            selection=plan.selection,
            score_cap=focus.cap,
            noise_multiplier=by.multiplier(budget, rounds, plan.beside),
            isotropic_multiplier=by.multiplier(budget, rounds),
            adjacency=adjacency,
        )

    def planned(self, occasion: Occasion = Occasion()) -> Receipt:
        """The selection, where it costs anything, and one Gaussian event."""
        events = (*self.selection.cost(occasion), Gaussian(self.noise_multiplier))
        return Receipt(events=events, terms=terms(self.adjacency, occasion))

    def release(self, vectors: Array, labels: Array, occasion: Occasion = Occasion()) -> Release:
        """Select, clip both groups, summarise, add noise to both (Alg. 1, lines 5-10)."""
        features = admit(vectors, labels, occasion)
        if features.vectors.shape[1] != self.groups.dim:
            raise InvalidInput(
                f"{occasion.client}: expected features of {self.groups.dim} dimensions, "
                f"got {features.vectors.shape[1]}; calibrate with dim={features.vectors.shape[1]}"
            )
        scores = anova_scores(features)
        choice = self.selection.choose(scores, self.groups.kept, occasion)
        summary, noised = self._perturbed(features, choice.focus, occasion)
        reach = self.groups.reach(choice.focus)
        diagnostics = {
            **self._noise_figures(noised),
            **overlap(choice.focus, scores, self.groups.kept),
            "selection_scale": self.selection.scale,
            "saturated": float((scores >= self.score_cap).double().mean()),
            "noise_to_signal": noise_to_signal(summary, noised, reach),
        }
        return Release(noised.prototypes, self.planned(occasion), diagnostics, choice.memory)

    def bounds(self, adjacency: Adjacency, summarise: Summariser) -> Mapping[str, str]:
        """Two things are computed from the data."""
        return {
            "selection": selection_bound(self.score_cap),
            "release": release_bound(adjacency, summarise),
        }

    def _perturbed(
        self, features: Features, focus: Bool[Tensor, " d"], occasion: Occasion
    ) -> tuple[Summary, Noised]:
        radii = self.groups.radii
        bounds = (self.clip_norm * radii[0], self.clip_norm * radii[1])
        summary = occasion.summarise(clip_groups(features.vectors, focus, bounds), features.labels)
        scale = Scale(
            multiplier=self.noise_multiplier,
            clip_norm=self.clip_norm,
            adjacency=self.adjacency,
            reach=self.groups.reach(focus),
        )
        return summary, perturb(summary, scale, occasion)

    def _noise_figures(self, noised: Noised) -> Mapping[str, float]:
        std = float(noised.stds.median()) if len(noised.stds) else 0.0
        first, second = self.groups.factors
        ratio = self.groups.energy * (self.noise_multiplier / self.isotropic_multiplier) ** 2
        return {
            "sigma": std,
            "sigma_focus": std * first,
            "sigma_rest": std * second,
            "energy_ratio": ratio,
        }
