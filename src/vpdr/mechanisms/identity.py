"""No privacy: prototypes go out as they are, and the receipt says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from vpdr.mechanisms.admission import admit
from vpdr.mechanisms.base import Array, Facts, Occasion
from vpdr.mechanisms.perturb import sendable, terms
from vpdr.privacy.events import NotPrivate
from vpdr.privacy.terms import Adjacency, Receipt, member
from vpdr.prototypes import Summariser
from vpdr.types import Release


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Neither clipping nor noise: the upper line of every comparison.

    Guarantee: none. Each release is a NotPrivate event, which a ledger with a budget refuses.
    """

    facts: ClassVar[Facts] = Facts(private=False)

    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", member(Adjacency, self.adjacency))

    def planned(self, occasion: Occasion = Occasion()) -> Receipt:
        """All privacy."""
        return Receipt(events=(NotPrivate(),), terms=terms(self.adjacency, occasion))

    def release(self, vectors: Array, labels: Array, occasion: Occasion = Occasion()) -> Release:
        """Summarise, and nothing else."""
        features = admit(vectors, labels, occasion)
        summary = occasion.summarise(features.vectors, features.labels)
        finished = occasion.summarise.finish(summary.vectors, summary.sizes.double())
        diagnostics = {"sigma": 0.0, "noise_to_signal": 0.0, "energy_ratio": 0.0}
        return Release(sendable(finished, summary), self.planned(occasion), diagnostics)

    def bounds(self, adjacency: Adjacency, summarise: Summariser) -> Mapping[str, str]:
        """Without clipping one sample can do anything."""
        return {"release": "none: features are not clipped and no noise is added"}
