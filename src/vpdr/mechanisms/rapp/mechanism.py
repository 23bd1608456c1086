"""Recentred, Accumulated Prototype Perturbation: look from where the last release pointed, and add up."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.checks import at_least
from vpdr.errors import InvalidInput
from vpdr.mechanisms.admission import admit
from vpdr.mechanisms.base import Array, Facts, Occasion
from vpdr.mechanisms.clipping import check_clip_norm
from vpdr.mechanisms.perturb import single
from vpdr.mechanisms.rapp.centres import heard_centres, moved_moment, next_centres, reseeded, spread_out
from vpdr.mechanisms.rapp.diagnosis import diagnosed
from vpdr.mechanisms.rapp.geometry import Geometry
from vpdr.mechanisms.rapp.look import Viewpoint, counting_adjacency, look
from vpdr.mechanisms.rapp.seen import Seen, read_counts
from vpdr.mechanisms.rapp.stages import SHARES, Stage, Stages
from vpdr.mechanisms.statement import release_bound
from vpdr.privacy.accountants import accountant_named
from vpdr.privacy.budget import Budget
from vpdr.privacy.events import Gaussian
from vpdr.privacy.terms import Adjacency, Basis, Counts, Noise, Receipt, Terms, member
from vpdr.prototypes import ClassSums, Summariser
from vpdr.types import Features, Prototypes, Release


@dataclass(frozen=True, kw_only=True, slots=True)
class Rapp:
    """Sums of residuals around already released centres, in stages whose releases are added up.

    Guarantee: each stage is two Gaussian events under `adjacency`; over all stages they are one Gaussian of
    `noise_multiplier` (docs/privacy.md, section 13), for centres chosen by anybody, as long as the encoder
    is not trained on the data. Every row of the public list is released, with noise that depends on no
    count; where a neighbour could change a count, the count is noisy too. It makes its own sums: the rule of
    the occasion is not used.
    """

    facts: ClassVar[Facts] = Facts(staged=True)

    clip_norm: float  # R of the first stage: about the norm of a feature; later ones find their own
    noise_multiplier: float  # of all stages together
    classes: int
    stages: Stages
    geometry: Geometry
    per_class: int = 1  # centres of each class
    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)
        Gaussian(self.noise_multiplier)
        at_least(1, classes=self.classes, per_class=self.per_class)
        object.__setattr__(self, "adjacency", member(Adjacency, self.adjacency))

    @classmethod
    def calibrated(  # noqa: PLR0913 - what is calibrated (budget, rounds) is not what is configured
        cls,
        budget: Budget,
        rounds: int,
        *,
        clip_norm: float,
        classes: int,
        geometry: Geometry,
        shares: tuple[float, ...] = SHARES,
        per_class: int = 1,
        accountant: str = "exact",
        adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL,
    ) -> "Rapp":
        """The least noise with which all stages, in `rounds` releases, stay within the budget."""
        return cls(
            clip_norm=clip_norm,
            noise_multiplier=accountant_named(accountant).multiplier(budget, 1),
            classes=classes,
            stages=Stages(releases=rounds, shares=shares),
            geometry=geometry,
            per_class=per_class,
            adjacency=adjacency,
        )

    def planned(self, occasion: Occasion = Occasion()) -> Receipt:
        """All events of the stages that come next: how many are behind is public."""
        stages = self._next_stages(self._remembered(occasion))
        events = tuple(event for stage in stages for event in stage.events)
        return Receipt(events=events, terms=self._terms(occasion))

    def release(self, vectors: Array, labels: Array, occasion: Occasion = Occasion()) -> Release:
        """The next stages, and what all stages so far say together."""
        features = self._admitted(vectors, labels, occasion)
        seen = self._remembered(occasion)
        for stage in self._next_stages(seen):
            seen = look(
                features, *self._prepared(seen, len(features.labels), occasion), stage, occasion.noise
            )
        counts = read_counts(seen, self._total(len(features.labels)), self._hides_counts)
        diagnostics = diagnosed(features, seen, counts, self.per_class)
        return Release(self._told(seen, counts), self.planned(occasion), diagnostics, seen.memory())

    def bounds(self, adjacency: Adjacency, summarise: Summariser) -> Mapping[str, str]:
        """Sums with counts, and one number."""
        counted = counting_adjacency(adjacency, self.per_class)
        return {
            "residual sums": release_bound(counted, ClassSums(classes=self.classes)),
            "second moment": "l2 1: one sample adds between 0 and 1 to it (proved)",
        }

    def _admitted(self, vectors: Array, labels: Array, occasion: Occasion) -> Features:
        allowed = self.classes if occasion.classes is None else min(self.classes, occasion.classes)
        features = admit(vectors, labels, dataclasses.replace(occasion, classes=allowed))
        dim = features.vectors.shape[1]
        if dim != self.geometry.dims[0]:
            raise InvalidInput(
                f"{occasion.client}: expected features of {self.geometry.dims[0]} dimensions, got {dim}; "
                "make the geometry for these features"
            )
        return Features(self.geometry.into(features.vectors), features.labels)

    @property
    def _reach(self) -> float:
        """The first radius: the declared clip norm, as the geometry shortens it."""
        return self.clip_norm * self.geometry.shrinks

    @property
    def _hides_counts(self) -> bool:
        return ClassSums(classes=1).hides_counts(counting_adjacency(self.adjacency, self.per_class))

    def _total(self, samples: int) -> int | None:
        """The size of the dataset, wherever no neighbour can change it."""
        return None if self.adjacency is Adjacency.ADD_REMOVE else samples

    def _remembered(self, occasion: Occasion) -> Seen:
        if occasion.memory:
            return Seen.recalled(occasion.memory)
        return Seen.nothing(self.classes * self.per_class, self.geometry.dims[1], self._reach)

    def _next_stages(self, seen: Seen) -> list[Stage]:
        return [self.stages.stage(n, self.noise_multiplier) for n in self.stages.of_release(seen.stage)]

    def _prepared(self, seen: Seen, samples: int, occasion: Occasion) -> tuple[Seen, Viewpoint]:
        """Centres and radius of the next stage, from what is public."""
        heard = heard_centres(occasion.heard, self.geometry, self.classes, self.clip_norm)
        centres = spread_out(heard, self.per_class, self._reach)
        if seen.stage:
            counts = read_counts(seen, self._total(samples), self._hides_counts)
            centres = next_centres(seen, heard.repeat_interleave(self.per_class, dim=0), counts)
            centres = reseeded(centres, counts, self.per_class, self._reach)
            moment = moved_moment(seen, centres, counts, self._reach)
            seen = dataclasses.replace(seen, moment=moment)
        view = Viewpoint(
            centres=centres,
            radius=math.sqrt(float(seen.moment)),
            per_class=self.per_class,
            adjacency=counting_adjacency(self.adjacency, self.per_class),
            total=self._total(samples),
        )
        return seen, view

    def _told(self, seen: Seen, counts: Float[Tensor, " p"]) -> Prototypes:
        """What leaves the client: one row for each centre of the public list, with its noise."""
        vectors = single(self.geometry.back(seen.estimate(counts)))
        labels = torch.arange(self.classes).repeat_interleave(self.per_class)
        return Prototypes(vectors, labels, single(seen.variances(counts) * self.geometry.spread))

    def _terms(self, occasion: Occasion) -> Terms:
        return Terms(
            adjacency=self.adjacency,
            encoder=occasion.encoder,
            counts=Counts.PRIVATE if self._hides_counts else Counts.PUBLIC,
            basis=Basis.PROVED,
            noise=Noise.SEEDED if occasion.noise.reproducible else Noise.SYSTEM,
        )
